"""The input of one training step: flat packed arrays, the same for every algorithm and every trainer.

Legend: `T` packed tokens, `S` segments, `R` rollouts, `G` groups. Segments stand one after the other in `T`.

Example: two rollouts of one group, the first with two segments of 3 and 2 tokens, the second with one of 4:
`segment_lengths = [3, 2, 4]`, `segment_rollout = [0, 0, 1]`, `rollout_group = [0, 0]`, `T = 9`, `S = 3`, `R = 2`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Int32 = npt.NDArray[np.int32]
    Float32 = npt.NDArray[np.float32]
    Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainBatch:
    """One step's samples. Aligned by *predicted* token: entry t of a [T] array speaks of `tokens[t]` itself."""

    tokens: Int32
    """[T] int32."""
    loss_mask: Bool
    """[T] bool: the policy sampled this token and it trains. Never true for the first token of a segment."""
    rollout_logprobs: Float32
    """[T] float32: the sampler's log-probability; 0 where the mask is false."""
    weight_versions: Int32
    """[T] int32: -1 where not sampled."""
    segment_lengths: Int32
    """[S] int32, sums to T."""
    segment_rollout: Int32
    """[S] int32: index into the [R] arrays."""
    rewards: Float32
    """[R] float32. Rollouts without a reward (infrastructure errors) are not in a batch (law 4)."""
    rollout_group: Int32
    """[R] int32: which rollouts are of one task and are compared (law 8)."""

    def __post_init__(self) -> None:
        total = len(self.tokens)
        for name in ("loss_mask", "rollout_logprobs", "weight_versions"):
            if len(getattr(self, name)) != total:
                raise ValueError(f"TrainBatch.{name} has {len(getattr(self, name))} entries for {total} tokens")
        if int(self.segment_lengths.sum()) != total:
            raise ValueError(f"segment lengths sum to {int(self.segment_lengths.sum())}, not {total}")
        if len(self.segment_rollout) != len(self.segment_lengths):
            raise ValueError("segment_rollout and segment_lengths differ in length")
        if len(self.rewards) != len(self.rollout_group):
            raise ValueError("rewards and rollout_group differ in length")

    def segment_starts(self) -> Int32:
        """[S] int32: index in T of each segment's first token."""
        ends = np.cumsum(self.segment_lengths)
        return (ends - self.segment_lengths).astype(np.int32)

    def token_rollout(self) -> Int32:
        """[T] int32: the rollout of each token."""
        return np.repeat(self.segment_rollout, self.segment_lengths)

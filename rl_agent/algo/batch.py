"""Input of one training step: flat packed arrays, the same for every algorithm and every trainer.

Legend: `T` packed tokens, `S` segments, `R` rollouts, `G` groups. Segments stand one after the other in `T`.

Example: two rollouts of one group, the first with two segments of 3 and 2 tokens, the second with one of 4:
`segment_lengths = [3, 2, 4]`, `segment_rollout = [0, 0, 1]`, `rollout_group = [0, 0]`, `T = 9`, `S = 3`, `R = 2`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rl_agent.algo.scores import Scores

if TYPE_CHECKING:
    import numpy.typing as npt

    Int32 = npt.NDArray[np.int32]
    Float32 = npt.NDArray[np.float32]
    Bool = npt.NDArray[np.bool_]

_TOKEN_ARRAYS: Final = ("tokens", "loss_mask", "rollout_logprobs", "weight_versions", "token_rewards")
_ROLLOUT_ARRAYS: Final = ("rewards", "rollout_group")


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFacts:
    """Facts about each rollout besides its tokens and its reward. All [R]."""

    truncated: Bool
    """A limit on tokens or turns, or the time budget, cut the rollout short."""
    greedy: Bool
    """Sampled at temperature 0 as a baseline for the rest of its group. Never trains."""
    turns: Int32
    ill_formed: Int32
    """Replies with a tool call that could not be parsed."""
    tool_calls: Int32
    tool_errors: Int32
    """Tool results that the agent CLI marked as errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainBatch:
    """Samples of one step. Aligned by *predicted* token: entry t of a [T] array describes `tokens[t]` itself."""

    tokens: Int32
    """[T] int32."""
    loss_mask: Bool
    """[T] bool: the policy sampled this token and it trains. Never true for the first token of a segment."""
    rollout_logprobs: Float32
    """[T] float32: the sampler's log-probability; 0 where the mask is false."""
    weight_versions: Int32
    """[T] int32: -1 where not sampled."""
    segment_lengths: Int32
    """[S] int32, sums to T. A rollout's segments are in the order of time."""
    segment_rollout: Int32
    """[S] int32: index into the [R] arrays."""
    rewards: Float32
    """[R] float32. Rollouts without a reward (infrastructure errors) are not in a batch (law 4)."""
    rollout_group: Int32
    """[R] int32: group of each rollout. Rollouts of a group are of one task and are compared (law 8)."""
    facts: RolloutFacts | None = None
    """None: unknown (demonstrations)."""
    token_rewards: Float32 | None = None
    """[T] float32: rewards of single tokens in addition to those of rollouts; None: no such rewards."""
    scores: Scores = field(default_factory=Scores)

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
        """Return the index in T of each segment's first token: [S] int32."""
        ends = np.cumsum(self.segment_lengths)
        return (ends - self.segment_lengths).astype(np.int32)

    def token_rollout(self) -> Int32:
        """Return the rollout of each token: [T] int32."""
        return np.repeat(self.segment_rollout, self.segment_lengths)

    def trained_tokens(self) -> Int32:
        """Return the number of trained tokens of each rollout: [R] int32."""
        return np.bincount(self.token_rollout()[self.loss_mask], minlength=len(self.rewards)).astype(np.int32)

    def trained_of_segments(self) -> Int32:
        """Return the number of trained tokens of each segment: [S] int32."""
        segment = np.repeat(np.arange(len(self.segment_lengths)), self.segment_lengths)
        return np.bincount(segment[self.loss_mask], minlength=len(self.segment_lengths)).astype(np.int32)

    def returns(self) -> Float32:
        """Return each rollout's reward plus the rewards of its tokens: [R] float32."""
        if self.token_rewards is None:
            return self.rewards
        earned = np.bincount(self.token_rollout(), weights=self.token_rewards, minlength=len(self.rewards))
        return (self.rewards + earned).astype(np.float32)

    def select(self, rollouts: Int32) -> tuple[TrainBatch, Int32]:
        """Return the part that belongs to `rollouts`, and the indices of its tokens in the whole batch ([t] int32)."""
        chosen = np.isin(self.segment_rollout, rollouts)
        tokens = np.flatnonzero(np.repeat(chosen, self.segment_lengths)).astype(np.int32)
        number = np.full(len(self.rewards), -1, dtype=np.int32)
        number[rollouts] = np.arange(len(rollouts), dtype=np.int32)
        arrays: dict[str, Any] = {name: _at(getattr(self, name), tokens) for name in _TOKEN_ARRAYS}
        arrays |= {name: getattr(self, name)[rollouts] for name in _ROLLOUT_ARRAYS}
        part = replace(
            self,
            **arrays,
            segment_lengths=self.segment_lengths[chosen],
            segment_rollout=number[self.segment_rollout[chosen]],
            facts=_each(self.facts, rollouts),
            scores=_each(self.scores, tokens),
        )
        return part, tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A batch that is ready to train on: scored, with advantages, and corrected as a whole. [T] arrays; None if no part made one."""

    batch: TrainBatch
    advantages: Float32
    old_logprobs: Float32
    """Log-probabilities under the proximal policy."""
    correction: Float32 | None = None
    corrected: Bool | None = None
    marked: Bool | None = None
    value_targets: Float32 | None = None
    kl: float | None = None
    """Mean divergence from the reference policy per trained token, before the update."""
    kl_coefficient: float = 0.0


def _at(values: npt.NDArray[Any] | None, places: Int32) -> npt.NDArray[Any] | None:
    return None if values is None else values[places]


def _each(arrays: Any, places: Int32) -> Any:
    """Return a dataclass of arrays with each array at `places`."""
    if arrays is None:
        return None
    return replace(arrays, **{f.name: _at(getattr(arrays, f.name), places) for f in fields(arrays)})

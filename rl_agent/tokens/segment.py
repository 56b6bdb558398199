"""Segments: linear token sequences for training."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from rl_agent.errors import LawError

if TYPE_CHECKING:
    from rl_agent.tokens.turn import Bool, Float32, Int32

NOT_SAMPLED = -1
"""Weight version of a token that the policy did not sample."""


class SegmentKind(StrEnum):
    """Origin of a segment in the agent run."""

    MAIN = "main"
    """The conversation that solves the task."""
    SUBAGENT = "subagent"
    """A conversation that the agent program started in parallel."""
    COMPACTION = "compaction"
    """A reply that summarizes a history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Aligned arrays of length T. `loss_mask` is true exactly where the policy sampled a token that trains."""

    kind: SegmentKind
    tokens: Int32
    loss_mask: Bool
    rollout_logprobs: Float32
    """[T] float32; 0 where `loss_mask` is false."""
    weight_versions: Int32
    """[T] int32; NOT_SAMPLED where the token was not sampled."""

    def __post_init__(self) -> None:
        lengths = {len(a) for a in (self.tokens, self.loss_mask, self.rollout_logprobs, self.weight_versions)}
        if len(lengths) != 1:
            raise LawError(f"segment: arrays differ in length: {sorted(lengths)}")
        if self.loss_mask.dtype != np.bool_:
            raise LawError(f"segment: loss_mask must be bool, got {self.loss_mask.dtype}")
        if len(self.loss_mask) and self.loss_mask[0]:
            raise LawError("segment: the first token cannot train because no token precedes it")

    @property
    def trained(self) -> int:
        """Return the number of tokens that train."""
        return int(self.loss_mask.sum())

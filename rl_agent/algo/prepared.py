"""A batch that is ready to be trained on: scored, with advantages, and corrected as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rl_agent.algo.batch import Bool, Float32, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """[T] arrays beside the batch's own; None where no part made one."""

    batch: TrainBatch
    advantages: Float32
    old_logprobs: Float32
    """Of the policy that the trust region is around."""
    correction: Float32 | None = None
    corrected: Bool | None = None
    marked: Bool | None = None
    value_targets: Float32 | None = None
    kl: float | None = None
    """Mean divergence a trained token from the reference policy, before the update."""
    kl_coefficient: float = 0.0

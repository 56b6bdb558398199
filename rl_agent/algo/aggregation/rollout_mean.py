"""Every rollout counts the same: `w = mask / (trained tokens of the rollout * rollouts)`.

The rollout's tokens are counted over all its segments, so cutting it into more of them changes nothing.
Worked: rollouts with 3 and 1 trained tokens: w = 1/6, 1/6, 1/6, 1/2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rl_agent.algo.batch import Float32, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutMean:
    """See `RolloutMeanConfig`."""

    def __call__(self, batch: TrainBatch) -> Float32:
        """[T] float32; rollouts without a trained token are not counted."""
        rollout = batch.token_rollout()
        trained = np.bincount(rollout, weights=batch.loss_mask, minlength=len(batch.rewards))
        rollouts = max(1, int((trained > 0).sum()))
        weights: Float32 = (batch.loss_mask / (np.maximum(trained, 1)[rollout] * rollouts)).astype(np.float32)
        return weights

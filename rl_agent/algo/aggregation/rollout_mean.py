"""Every rollout counts the same: `w = mask / (trained tokens of the rollout * rollouts)`.

The tokens are counted over all segments of the rollout, so cutting it into more segments changes nothing.
Worked: rollouts with 3 and 1 trained tokens: w = 1/6, 1/6, 1/6, 1/2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from rl_agent.config.algo import AggregationConfig

if TYPE_CHECKING:
    from rl_agent.algo.batch import Float32, TrainBatch


@dataclass(kw_only=True)
class RolloutMeanConfig(AggregationConfig):
    """Every rollout counts the same, whatever its length and its number of segments."""

    @override
    def build(self) -> RolloutMean:
        return RolloutMean(self)


class RolloutMean:
    """See `RolloutMeanConfig`."""

    def __init__(self, config: RolloutMeanConfig) -> None:
        self.config = config

    def __call__(self, batch: TrainBatch) -> Float32:
        """Return the weights: [T] float32. Rollouts without a trained token do not count."""
        trained = batch.trained_tokens()
        rollouts = max(1, int((trained > 0).sum()))
        weights = 1.0 / (np.maximum(trained, 1)[batch.token_rollout()] * rollouts)
        return np.where(batch.loss_mask, weights, 0.0).astype(np.float32)

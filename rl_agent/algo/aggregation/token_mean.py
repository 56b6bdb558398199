"""Every trained token counts the same: `w = mask / sum(mask)`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from rl_agent.config.algo import AggregationConfig

if TYPE_CHECKING:
    from rl_agent.algo.batch import Float32, TrainBatch


@dataclass(kw_only=True)
class TokenMeanConfig(AggregationConfig):
    """Every trained token counts the same, so long rollouts weigh more."""

    @override
    def build(self) -> TokenMean:
        return TokenMean(self)


class TokenMean:
    """See `TokenMeanConfig`."""

    def __init__(self, config: TokenMeanConfig) -> None:
        self.config = config

    def __call__(self, batch: TrainBatch) -> Float32:
        """Return the weights: [T] float32, all zero without a trained token."""
        weights: Float32 = (batch.loss_mask / max(1, int(batch.loss_mask.sum()))).astype(np.float32)
        return weights

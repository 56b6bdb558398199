"""A weighted mean over all predicted tokens: 1 for the policy's own, `context_weight` for the tokens around them.

Training a small model on the prompts' tokens too teaches it to read them. Nothing predicts the first token of a segment.
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
class ContextMeanConfig(AggregationConfig):
    """Trained tokens count fully, the tokens around them a little."""

    context_weight: float = 0.1
    """Weight of a token that the policy did not write, relative to one that it wrote."""

    @override
    def build(self) -> ContextMean:
        return ContextMean(self)


class ContextMean:
    """See `ContextMeanConfig`."""

    def __init__(self, config: ContextMeanConfig) -> None:
        self.config = config

    def __call__(self, batch: TrainBatch) -> Float32:
        """Return the weights: [T] float32, all zero without a trained token."""
        if not batch.loss_mask.any():
            return np.zeros(len(batch.tokens), dtype=np.float32)
        weights = np.where(batch.loss_mask, 1.0, self.config.context_weight)
        weights[batch.segment_starts()[batch.segment_lengths > 0]] = 0.0
        normalized: Float32 = (weights / weights.sum()).astype(np.float32)
        return normalized

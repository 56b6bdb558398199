"""A weighted mean over all predicted tokens: 1 for the policy's own, `context_weight` for the tokens around them.

Teaching a small model the prompts' tokens too makes it learn to read them; a segment's first token is predicted by nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rl_agent.algo.batch import Float32, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextMean:
    """See `ContextMeanConfig`."""

    context_weight: float

    def __call__(self, batch: TrainBatch) -> Float32:
        """[T] float32; all zero in a batch without a trained token."""
        if not batch.loss_mask.any():
            return np.zeros(len(batch.tokens), dtype=np.float32)
        starts = batch.segment_starts()[batch.segment_lengths > 0]
        trained = int(np.count_nonzero(batch.loss_mask))
        total = trained + self.context_weight * (len(batch.tokens) - trained - len(starts))
        weights = np.where(batch.loss_mask, np.float32(1.0 / total), np.float32(self.context_weight / total))
        weights[starts] = 0.0
        return weights

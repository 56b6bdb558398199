"""Every segment counts the same: `w = mask / (trained tokens of the segment * segments)`.

A rollout of more segments weighs more; `rollout_mean` counts rollouts instead. GRPO and GSPO use this mean (arXiv 2402.03300,
2507.18071), where a rollout is one sequence. Worked: segments with 3 and 1 trained tokens: w = 1/6, 1/6, 1/6, 1/2.
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
class SequenceMeanConfig(AggregationConfig):
    """Every segment counts the same, whatever its length."""

    @override
    def build(self) -> SequenceMean:
        return SequenceMean(self)


class SequenceMean:
    """See `SequenceMeanConfig`."""

    def __init__(self, config: SequenceMeanConfig) -> None:
        self.config = config

    def __call__(self, batch: TrainBatch) -> Float32:
        """Return the weights: [T] float32. Segments without a trained token do not count."""
        trained = batch.trained_of_segments()
        segments = max(1, int((trained > 0).sum()))
        weights = np.repeat(1.0 / (np.maximum(trained, 1) * segments), batch.segment_lengths)
        return np.where(batch.loss_mask, weights, 0.0).astype(np.float32)

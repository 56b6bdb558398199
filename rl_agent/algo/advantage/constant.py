"""The same advantage for every token: with a log-likelihood loss this is imitation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rl_agent.algo.batch import Float32, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantAdvantage:
    """See `ConstantAdvantageConfig`."""

    value: float

    def __call__(self, batch: TrainBatch) -> Float32:
        """[T] float32."""
        return np.full(len(batch.tokens), self.value, dtype=np.float32)

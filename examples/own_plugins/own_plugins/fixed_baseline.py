"""An advantage with a constant baseline: A = scale * (reward - baseline), the oldest REINFORCE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rl_agent.config.algo import AdvantageConfig

if TYPE_CHECKING:
    from rl_agent.algo.batch import Float32, TrainBatch


@dataclass(kw_only=True)
class FixedBaselineConfig(AdvantageConfig):
    """Reward minus a constant."""

    baseline: float = 0.5
    """Reward at which a rollout is neither reinforced nor discouraged."""
    scale: float = 1.0
    """Multiplies every advantage."""

    def build(self) -> FixedBaseline:
        """Return the advantage."""
        return FixedBaseline(self)


class FixedBaseline:
    """See the module."""

    def __init__(self, config: FixedBaselineConfig) -> None:
        self._config = config

    def __call__(self, batch: TrainBatch) -> Float32:
        """Return the advantage of every token, [T] float32."""
        of_rollout = self._config.scale * (batch.returns() - self._config.baseline)
        return of_rollout.astype(np.float32)[batch.token_rollout()]

"""An advantage that compares each reward with the median of its group, which one lucky rollout does not move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rl_agent.config.algo import AdvantageConfig

if TYPE_CHECKING:
    from rl_agent.algo.batch import Float32, TrainBatch


@dataclass(kw_only=True)
class MedianConfig(AdvantageConfig):
    """Reward minus the group's median reward."""

    compares_within_group: ClassVar[bool] = True
    scale: float = 1.0
    """Multiplies every advantage."""

    def build(self) -> Median:
        """Return the advantage."""
        return Median(self)


class Median:
    """See the module."""

    def __init__(self, config: MedianConfig) -> None:
        self._scale = config.scale

    def __call__(self, batch: TrainBatch) -> Float32:
        """Return the advantage of every token, [T] float32."""
        rewards = batch.returns()
        advantages = np.zeros(len(rewards), dtype=np.float32)
        for group in np.unique(batch.rollout_group):
            members = batch.rollout_group == group
            advantages[members] = self._scale * (rewards[members] - np.median(rewards[members]))
        return advantages[batch.token_rollout()]

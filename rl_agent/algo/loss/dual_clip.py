"""Dual-clip PPO: the surrogate of a bad token is bounded too (arXiv 1912.09729, equation 5).

    loss = PPO's                            for A >= 0
    loss = min(PPO's, -A * clip_bad)        for A < 0

Worked, c = 3, bounds 0.2: A = 1, -1, -4 and r = 0.5, 1, 10 give -0.5, 1, 12.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rl_agent.algo.base import LossTerms
from rl_agent.algo.loss.ppo_clip import clipped_surrogate
from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from rl_agent.algo.base import LossInput


@dataclass(frozen=True, slots=True, kw_only=True)
class DualClipLoss:
    """See `DualClipLossConfig`."""

    clip_low: float
    clip_high: float
    clip_bad: float

    def __post_init__(self) -> None:
        if self.clip_bad <= 1.0:
            raise ConfigError(f"algo.loss.clip_bad is {self.clip_bad}; it must be above 1")

    def __call__(self, inputs: LossInput) -> LossTerms:
        """`dual_clip_fraction`: where the second bound holds."""
        log = inputs.logprobs - inputs.old_logprobs
        terms = clipped_surrogate(log, inputs.advantages, self.clip_low, self.clip_high)
        bound = -inputs.advantages * self.clip_bad
        bounded = (inputs.advantages < 0) & (terms.loss > bound)
        return LossTerms(
            loss=torch.where(bounded, bound, terms.loss), metrics={**terms.metrics, "dual_clip_fraction": bounded}
        )

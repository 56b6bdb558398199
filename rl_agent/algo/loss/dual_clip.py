"""Dual-clip PPO, which bounds the surrogate of a bad token too (arXiv 1912.09729, equation 5).

    loss = PPO's                            for A >= 0
    loss = min(PPO's, -A * clip_bad)        for A < 0

Worked, c = 3, bounds 0.2: A = 1, -1, -4 and r = 0.5, 1, 10 give -0.5, 1, 12.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from rl_agent.algo.base import LossTerms
from rl_agent.algo.loss.ppo_clip import clipped_surrogate
from rl_agent.config.algo import LossConfig
from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from rl_agent.algo.base import LossInput


@dataclass(kw_only=True)
class DualClipConfig(LossConfig):
    """PPO's clipped surrogate, bounded for negative advantages too."""

    clip_low: float = 0.2
    """Distance below 1 at which the ratio is clipped."""
    clip_high: float = 0.2
    """Distance above 1 at which the ratio is clipped."""
    clip_bad: float = 3.0
    """Largest ratio of a token with a negative advantage; above 1."""

    @override
    def build(self) -> DualClip:
        return DualClip(self)


class DualClip:
    """See `DualClipConfig`."""

    def __init__(self, config: DualClipConfig) -> None:
        if config.clip_bad <= 1.0:
            raise ConfigError(f"algo.loss.clip_bad: {config.clip_bad} is not above 1. Set it above 1.")
        self.config = config

    def __call__(self, inputs: LossInput) -> LossTerms:
        """Return the loss of each token. `dual_clip_fraction`: tokens at the second bound."""
        log = inputs.logprobs - inputs.old_logprobs
        terms = clipped_surrogate(log, inputs.advantages, self.config.clip_low, self.config.clip_high)
        bound = -inputs.advantages * self.config.clip_bad
        bounded = (inputs.advantages < 0) & (terms.loss > bound)
        loss = bound.where(bounded, terms.loss)
        return LossTerms(loss=loss, metrics={**terms.metrics, "dual_clip_fraction": bounded})

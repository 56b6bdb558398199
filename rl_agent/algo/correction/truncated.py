"""Truncated importance sampling (TIS): the probability ratio of proximal policy and sampler, within bounds.

(Ionides 2008; for a sampler that is another program: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy
RL training")

    w = clip(p_proximal / p_sampler, low, high)        of a token, or of its sequence: the product or the geometric mean

Worked, high 0.8: ratios 0.6065, 1.6487, 0.8187: 0.6065, 0.8, 0.8; as one sequence e^(-0.5+0.5-0.2) = 0.8187: 0.8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from rl_agent.algo.base import CorrectionTerms
from rl_agent.algo.ratio import WeightLevel, at_level
from rl_agent.config.algo import CorrectionConfig

if TYPE_CHECKING:
    from rl_agent.algo.base import CorrectionInput


@dataclass(kw_only=True)
class TruncatedConfig(CorrectionConfig):
    """Truncated importance sampling (TIS): clipped weights."""

    level: WeightLevel = WeightLevel.token
    low: float = 0.0
    """Smallest weight."""
    high: float = 2.0
    """Largest weight."""

    @override
    def build(self) -> Truncated:
        return Truncated(self)


class Truncated:
    """See `TruncatedConfig`."""

    def __init__(self, config: TruncatedConfig) -> None:
        self.config = config

    def __call__(self, inputs: CorrectionInput) -> CorrectionTerms:
        """Return the clipped weights. No token is rejected, unless `low` and `high` are 0."""
        weights = at_level(inputs, self.config.level).exp()
        capped = weights.clamp(self.config.low, self.config.high)
        return CorrectionTerms(weights=capped, corrected=capped != weights)

"""Truncated importance sampling (TIS): how much likelier the proximal policy finds a token than the sampler did, within bounds.

(Ionides 2008; for a sampler that is another program: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy
RL training")

    w = clip(p_proximal / p_sampler, low, high)        of a token, or of its sequence: the product or the geometric mean

Worked, high 0.8: ratios 0.6065, 1.6487, 0.8187: 0.6065, 0.8, 0.8; as one sequence e^(-0.5+0.5-0.2) = 0.8187: 0.8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rl_agent.algo.base import CorrectionTerms
from rl_agent.algo.correction.levels import at_level

if TYPE_CHECKING:
    from rl_agent.algo.base import CorrectionInput
    from rl_agent.config.algo_parts import Proximal, WeightLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated:
    """See `TruncatedConfig`."""

    proximal: Proximal
    level: WeightLevel
    low: float
    high: float

    def __call__(self, inputs: CorrectionInput) -> CorrectionTerms:
        """Nothing is rejected, unless `low` and `high` are 0."""
        weights = at_level(inputs, self.level).exp()
        capped = weights.clamp(self.low, self.high)
        return CorrectionTerms(weights=capped, corrected=capped != weights)

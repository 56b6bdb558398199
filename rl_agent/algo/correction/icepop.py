"""IcePop: tokens on which trainer and sampler agree are weighted, the others are rejected.

(Ling team 2025, "Small leak can sink a great ship")

    w = p_proximal / p_sampler        if low <= w <= high, else 0

Worked, bounds 0.5 and 5: 0.6065, 12.182, 0.8187: 0.6065, 0, 0.8187.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from rl_agent.algo.base import CorrectionTerms
from rl_agent.config.algo import CorrectionConfig

if TYPE_CHECKING:
    from rl_agent.algo.base import CorrectionInput


@dataclass(kw_only=True)
class IcePopConfig(CorrectionConfig):
    """Weights within bounds; tokens beyond them are rejected."""

    low: float = 0.5
    high: float = 5.0

    @override
    def build(self) -> IcePop:
        return IcePop(self)


class IcePop:
    """See `IcePopConfig`."""

    def __init__(self, config: IcePopConfig) -> None:
        self.config = config

    def __call__(self, inputs: CorrectionInput) -> CorrectionTerms:
        """Return the weights of tokens."""
        weights = inputs.log_weights.exp()
        rejected = (weights < self.config.low) | (weights > self.config.high)
        return CorrectionTerms(weights=weights.masked_fill(rejected, 0.0), corrected=rejected)

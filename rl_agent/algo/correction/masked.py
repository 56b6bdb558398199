"""Masked importance sampling (MIS): a sequence that the sampler found too likely or too unlikely is rejected as a whole.

(Liu et al. 2025, "When speed kills stability")

    keep = low <= W <= high        W the product of the sequence's token weights, or their geometric mean
    w = keep * (token weight, or 1 if not `weighted`)

Worked, geometric, bounds 0.999 and 1.002: three log weights of 0.0005: W = 1.0005, kept; of 0.003: rejected.
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
class MaskedConfig(CorrectionConfig):
    """Masked importance sampling: reject whole sequences beyond the bounds, weight the tokens of the others."""

    level: WeightLevel = WeightLevel.geometric
    low: float = 0.999
    high: float = 1.002
    weighted: bool = True
    """Weight the tokens that are kept; false: they have weight 1."""

    @override
    def build(self) -> Masked:
        return Masked(self)


class Masked:
    """See `MaskedConfig`."""

    def __init__(self, config: MaskedConfig) -> None:
        self.config = config

    def __call__(self, inputs: CorrectionInput) -> CorrectionTerms:
        """Return the weights of tokens."""
        whole = at_level(inputs, self.config.level).exp()
        rejected = (whole < self.config.low) | (whole > self.config.high)
        weights = inputs.log_weights.exp() if self.config.weighted else whole.new_ones(len(whole))
        return CorrectionTerms(weights=weights.masked_fill(rejected, 0.0), corrected=rejected)

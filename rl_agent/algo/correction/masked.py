"""Masked importance sampling (MIS): a sequence that the sampler found too likely or too unlikely is rejected whole.

(Liu et al. 2025, "When speed kills stability")

    keep = low <= W <= high        W the product of the sequence's token weights, or their geometric mean
    w = keep * (token weight, or 1 if not `weighted`)

Worked, geometric, bounds 0.999 and 1.002: three log weights of 0.0005: W = 1.0005, kept; of 0.003: rejected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rl_agent.algo.base import CorrectionTerms
from rl_agent.algo.correction.levels import at_level

if TYPE_CHECKING:
    from rl_agent.algo.base import CorrectionInput
    from rl_agent.config.algo_parts import Proximal, WeightLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked:
    """See `MaskedConfig`."""

    proximal: Proximal
    level: WeightLevel
    low: float
    high: float
    weighted: bool

    def __call__(self, inputs: CorrectionInput) -> CorrectionTerms:
        """Weights of tokens."""
        whole = at_level(inputs, self.level).exp()
        rejected = (whole < self.low) | (whole > self.high)
        weights = inputs.log_weights.exp() if self.weighted else torch.ones_like(whole)
        return CorrectionTerms(weights=torch.where(rejected, torch.zeros_like(weights), weights), corrected=rejected)

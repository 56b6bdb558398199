"""IcePop: tokens on which trainer and sampler agree are weighted, the others are rejected.

(Ling team 2025, "Small leak can sink a great ship")

    w = p_proximal / p_sampler        if low <= w <= high, else 0

Worked, bounds 0.5 and 5: 0.6065, 12.182, 0.8187: 0.6065, 0, 0.8187.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rl_agent.algo.base import CorrectionTerms

if TYPE_CHECKING:
    from rl_agent.algo.base import CorrectionInput
    from rl_agent.config.algo_parts import Proximal


@dataclass(frozen=True, slots=True, kw_only=True)
class IcePop:
    """See `IcePopConfig`."""

    proximal: Proximal
    low: float
    high: float

    def __call__(self, inputs: CorrectionInput) -> CorrectionTerms:
        """Weights of tokens."""
        weights = inputs.log_weights.exp()
        rejected = (weights < self.low) | (weights > self.high)
        return CorrectionTerms(weights=torch.where(rejected, torch.zeros_like(weights), weights), corrected=rejected)

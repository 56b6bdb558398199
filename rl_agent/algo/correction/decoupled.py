"""Decoupled PPO: the trust region is around the proximal policy, and weights lead from the sampler to it.

(arXiv 2505.24298, equation 5; arXiv 2110.00641)

    loss = p_proximal / p_sampler * PPO(r = p / p_proximal)        weights above `cap` reject the token

The denominator stays the number of trained tokens, rejected ones included. Worked, cap 5: weights 0.6065, 12.182, 0.8187: 0.6065, 0,
0.8187.
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
class Decoupled:
    """See `DecoupledConfig`."""

    proximal: Proximal
    cap: float | None

    def __call__(self, inputs: CorrectionInput) -> CorrectionTerms:
        """Weights of tokens."""
        weights = inputs.log_weights.exp()
        rejected = torch.zeros_like(inputs.loss_mask) if self.cap is None else weights > self.cap
        return CorrectionTerms(weights=torch.where(rejected, torch.zeros_like(weights), weights), corrected=rejected)

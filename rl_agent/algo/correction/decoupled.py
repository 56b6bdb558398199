"""Decoupled PPO: the trust region is around the proximal policy, and weights lead from the sampler to it.

(arXiv 2505.24298, equation 5; arXiv 2110.00641)

    loss = p_proximal / p_sampler * PPO(r = p / p_proximal)        weights above `cap` reject the token

The denominator stays the number of trained tokens, rejected ones included. Worked, cap 5: weights 0.6065, 12.182, 0.8187: 0.6065, 0,
0.8187.
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
class DecoupledConfig(CorrectionConfig):
    """Decoupled PPO: sampler, proximal policy and current policy are three. `proximal=approximated` saves the forward pass."""

    cap: float | None = 5.0
    """Largest weight; tokens with a larger one are rejected. null: none is rejected."""

    @override
    def build(self) -> Decoupled:
        return Decoupled(self)


class Decoupled:
    """See `DecoupledConfig`."""

    def __init__(self, config: DecoupledConfig) -> None:
        self.config = config

    def __call__(self, inputs: CorrectionInput) -> CorrectionTerms:
        """Return the weights of tokens."""
        weights = inputs.log_weights.exp()
        rejected = weights > (float("inf") if self.config.cap is None else self.config.cap)
        return CorrectionTerms(weights=weights.masked_fill(rejected, 0.0), corrected=rejected)

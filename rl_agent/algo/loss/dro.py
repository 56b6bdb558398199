"""DRO: policy gradient with a squared pull to the old policy (arXiv 2405.19107, equation 5, a token at a time).

    loss = -(A log p - beta / 2 * (log p - log p_old)^2)

Worked, beta = 0.05: log p = -0.8, -0.9, old -1, -0.7, A = 2, -1.5: 1.601, -1.349; mean 0.126.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rl_agent.algo.base import LossTerms
from rl_agent.algo.ratio import likelihood_loss, log_ratio

if TYPE_CHECKING:
    from rl_agent.algo.base import LossInput


@dataclass(frozen=True, slots=True, kw_only=True)
class DroLoss:
    """See `DroLossConfig`."""

    beta: float

    @property
    def trains_without_advantage(self) -> bool:
        """The pull does, once the policy has moved."""
        return self.beta != 0.0

    def __call__(self, inputs: LossInput) -> LossTerms:
        """`ratio`: how far the policy has gone."""
        log = log_ratio(inputs.logprobs, inputs.old_logprobs)
        loss = likelihood_loss(inputs.logprobs, inputs.advantages) + 0.5 * self.beta * log.square()
        return LossTerms(loss=loss, metrics={"ratio": log.detach().exp()})

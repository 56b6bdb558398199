"""DRO: policy gradient with a squared pull to the old policy (arXiv 2405.19107, equation 5, per token).

    loss = -(A log p - beta / 2 * (log p - log p_old)^2)

Worked, beta = 0.05: log p = -0.8, -0.9, old -1, -0.7, A = 2, -1.5: 1.601, -1.349; mean 0.126.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from rl_agent.algo.base import LossTerms
from rl_agent.algo.ratio import floored, log_ratio
from rl_agent.config.algo import LossConfig

if TYPE_CHECKING:
    from rl_agent.algo.base import LossInput


@dataclass(kw_only=True)
class DroConfig(LossConfig):
    """Direct reward optimization: policy gradient with a squared pull to the old policy."""

    beta: float = 0.05
    """Weight of the pull."""

    @property
    @override
    def trains_without_advantage(self) -> bool:
        """True with the pull, once the policy has moved."""
        return self.beta != 0.0

    @override
    def build(self) -> Dro:
        return Dro(self)


class Dro:
    """See `DroConfig`."""

    def __init__(self, config: DroConfig) -> None:
        self.config = config

    def __call__(self, inputs: LossInput) -> LossTerms:
        """Return the loss of each token."""
        log = log_ratio(inputs.logprobs, inputs.old_logprobs)
        loss = -inputs.advantages * floored(inputs.logprobs) + 0.5 * self.config.beta * log.square()
        return LossTerms(loss=loss, metrics={"ratio": log.detach().exp()})

"""SAPO: a soft gate in place of a clip (arXiv 2511.20347, equations 5-6).

    loss = -A * (4 / tau) * sigmoid(tau * (r - 1))        tau = tau_good for A > 0, else tau_bad

At r = 1 the gradient is -A, as in PPO; away from it the gate closes smoothly. Worked: A = 1, r = 1, tau = 1: -2; r = 2: -2.9242.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from rl_agent.algo.base import LossTerms
from rl_agent.algo.ratio import log_ratio
from rl_agent.config.algo import LossConfig

if TYPE_CHECKING:
    from rl_agent.algo.base import LossInput


@dataclass(kw_only=True)
class SapoConfig(LossConfig):
    """A soft gate in place of a clip."""

    tau_good: float = 1.0
    """Steepness of the gate for positive advantages."""
    tau_bad: float = 1.05
    """Steepness of the gate for the other advantages, which push probability to tokens that nobody sampled."""

    @override
    def build(self) -> Sapo:
        return Sapo(self)


class Sapo:
    """See `SapoConfig`."""

    def __init__(self, config: SapoConfig) -> None:
        self.config = config

    def __call__(self, inputs: LossInput) -> LossTerms:
        """Return the loss of each token. `gate`: gradient relative to PPO's at r = 1, 4 s (1 - s)."""
        ratio = log_ratio(inputs.logprobs, inputs.old_logprobs).exp()
        good = inputs.advantages > 0
        tau = ratio.new_full((len(good),), self.config.tau_good).where(good, self.config.tau_bad)
        soft = (tau * (ratio - 1.0)).sigmoid()
        gate = 4.0 * soft.detach() * (1.0 - soft.detach())
        return LossTerms(loss=-inputs.advantages * 4.0 / tau * soft, metrics={"ratio": ratio.detach(), "gate": gate})

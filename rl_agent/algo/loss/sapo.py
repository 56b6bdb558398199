"""SAPO: a soft gate in place of a clip (arXiv 2511.20347, equations 5-6).

    loss = -A * (4 / tau) * sigmoid(tau * (r - 1))        tau = tau_good for A > 0, else tau_bad

At r = 1 the gradient is -A, as in PPO; away from it the gate closes smoothly. Worked: A = 1, r = 1, tau = 1: -2; r = 2: -2.9242.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rl_agent.algo.base import LossTerms
from rl_agent.algo.ratio import log_ratio

if TYPE_CHECKING:
    from rl_agent.algo.base import LossInput


@dataclass(frozen=True, slots=True, kw_only=True)
class SapoLoss:
    """See `SapoLossConfig`."""

    tau_good: float
    tau_bad: float

    def __call__(self, inputs: LossInput) -> LossTerms:
        """`gate`: the share of PPO's gradient at r = 1 that is let through, 4 s (1 - s)."""
        ratio = log_ratio(inputs.logprobs, inputs.old_logprobs).exp()
        good = inputs.advantages > 0
        tau = torch.where(good, ratio.new_tensor(self.tau_good), ratio.new_tensor(self.tau_bad))
        soft = torch.sigmoid(tau * (ratio - 1.0))
        with torch.no_grad():
            metrics = {"ratio": ratio.detach(), "gate": 4.0 * soft * (1.0 - soft)}
        return LossTerms(loss=-inputs.advantages * 4.0 / tau * soft, metrics=metrics)

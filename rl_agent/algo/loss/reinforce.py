"""REINFORCE: `-A log p` (Williams 1992); what the sampler had in mind is the correction's business.

Worked: A = 1, -1, 2 and log p = -0.5, -1, -1.5: 0.5, -1, 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rl_agent.algo.base import LossTerms
from rl_agent.algo.ratio import likelihood_loss, log_ratio

if TYPE_CHECKING:
    from rl_agent.algo.base import LossInput


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinforceLoss:
    """See `ReinforceLossConfig`."""

    def __call__(self, inputs: LossInput) -> LossTerms:
        """`ratio`: how far the policy has gone; nothing is done about it."""
        ratio = log_ratio(inputs.logprobs.detach(), inputs.old_logprobs).exp()
        return LossTerms(loss=likelihood_loss(inputs.logprobs, inputs.advantages), metrics={"ratio": ratio})

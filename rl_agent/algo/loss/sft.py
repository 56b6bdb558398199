"""Negative log-likelihood, weighted by the advantage: `-A log p`.

With `advantage=constant` this is supervised fine-tuning. Worked: A = 1, log p = -0.5 gives 0.5; its gradient is -1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rl_agent.algo.base import LossTerms
from rl_agent.algo.ratio import floored, likelihood_loss

if TYPE_CHECKING:
    from rl_agent.algo.base import LossInput


@dataclass(frozen=True, slots=True, kw_only=True)
class SftLoss:
    """See `SftLossConfig`."""

    def __call__(self, inputs: LossInput) -> LossTerms:
        """`nll`: over the trained tokens only, whatever the aggregation counts besides."""
        loss = likelihood_loss(inputs.logprobs, inputs.advantages)
        return LossTerms(loss=loss, metrics={"nll": -floored(inputs.logprobs.detach())})

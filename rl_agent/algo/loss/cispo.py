"""CISPO: REINFORCE with a clipped importance weight, so that no token loses its gradient (arXiv 2506.13585, equation 4).

    loss = -stop(clip(r, 1 - clip_low, 1 + clip_high)) * A * log p

Worked: r = 1, 3, 9, 0.4 with bounds 1 and 4: weights 1, 3, 5, 0.4; the gradient is -weight * A.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rl_agent.algo.base import LossTerms
from rl_agent.algo.ratio import likelihood_loss, log_ratio

if TYPE_CHECKING:
    from rl_agent.algo.base import LossInput


@dataclass(frozen=True, slots=True, kw_only=True)
class CispoLoss:
    """See `CispoLossConfig`."""

    clip_low: float
    clip_high: float

    def __call__(self, inputs: LossInput) -> LossTerms:
        """`clip_fraction`: where the weight is bounded; the token trains all the same."""
        ratio = log_ratio(inputs.logprobs.detach(), inputs.old_logprobs).exp()
        weight = ratio.clamp(1.0 - self.clip_low, 1.0 + self.clip_high)
        return LossTerms(
            loss=likelihood_loss(inputs.logprobs, weight * inputs.advantages),
            metrics={"clip_fraction": weight != ratio, "ratio": ratio},
        )

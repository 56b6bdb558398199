"""PPO's clipped surrogate, one ratio a token (arXiv 1707.06347, equation 7; two bounds: arXiv 2503.14476).

    r = exp(logprobs - old_logprobs)
    loss = max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high))

Worked, both bounds 0.2: A = 1, -1, 2 and r = 0.5, 1, 1.5 give -0.5, 1, -2.4.
Limits: at r = 1 the gradient is -A times that of the log-probability; beyond a bound, on the side that the advantage
pushes to, it is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rl_agent.algo.base import LossTerms
from rl_agent.algo.ratio import log_ratio

if TYPE_CHECKING:
    from torch import Tensor

    from rl_agent.algo.base import LossInput


@dataclass(frozen=True, slots=True, kw_only=True)
class PpoClipLoss:
    """See `PpoClipLossConfig`."""

    clip_low: float
    clip_high: float

    def __call__(self, inputs: LossInput) -> LossTerms:
        """`clip_fraction`: where the clipped term is the larger one, so the token gives no gradient."""
        ratio = log_ratio(inputs.logprobs, inputs.old_logprobs).exp()
        return clipped_surrogate(ratio, inputs.advantages, self.clip_low, self.clip_high)


def clipped_surrogate(ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float) -> LossTerms:
    """The loss of each token for ratios of whatever kind, with the metrics `ratio` and `clip_fraction`."""
    free = -advantages * ratio
    clipped = -advantages * ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    metrics = {"clip_fraction": (clipped > free).detach(), "ratio": ratio.detach()}
    return LossTerms(loss=torch.maximum(free, clipped), metrics=metrics)

"""PPO's clipped surrogate, one ratio a token (arXiv 1707.06347, equation 7; two bounds: arXiv 2503.14476).

    r = exp(logprobs - old_logprobs)
    loss = max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high))

Worked, both bounds 0.2: A = 1, -1, 2 and r = 0.5, 1, 1.5 give -0.5, 1, -2.4.
Limits: at r = 1 the gradient is -A times that of the log-probability; beyond a bound, on the side that the advantage
pushes to, it is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from rl_agent.algo.base import LossTerms

if TYPE_CHECKING:
    from rl_agent.algo.base import LossInput

LOG_RATIO_LIMIT: Final = 20.0
"""exp(20) is 5e8: beyond every sensible bound, and far from the float32 overflow that would make the gradient NaN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PpoClipLoss:
    """See `PpoClipLossConfig`."""

    clip_low: float
    clip_high: float

    def __call__(self, inputs: LossInput) -> LossTerms:
        """`clip_fraction`: where the clipped term is the larger one, so the token gives no gradient."""
        log_ratio = (inputs.logprobs - inputs.old_logprobs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        ratio = log_ratio.exp()
        free = -inputs.advantages * ratio
        clipped = -inputs.advantages * ratio.clamp(1.0 - self.clip_low, 1.0 + self.clip_high)
        metrics = {"clip_fraction": (clipped > free).float().detach(), "ratio": ratio.detach()}
        return LossTerms(loss=torch.maximum(free, clipped), metrics=metrics)

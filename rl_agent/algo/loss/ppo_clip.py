"""PPO's clipped surrogate, one ratio a token (arXiv 1707.06347, equation 7; two bounds: arXiv 2503.14476).

    r = exp(logprobs - old_logprobs)
    loss = max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high))

Worked, both bounds 0.2: A = 1, -1, 2 and r = 0.5, 1, 1.5 give -0.5, 1, -2.4.
Limits: at r = 1 the gradient is -A times that of the log-probability; beyond a bound, on the side that the advantage
pushes to, it is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from typing_extensions import override

from rl_agent.algo.base import LossTerms
from rl_agent.algo.ratio import LOG_RATIO_LIMIT, lie_within

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
        log = inputs.logprobs - inputs.old_logprobs
        return clipped_surrogate(log, inputs.advantages, self.clip_low, self.clip_high)


def clipped_surrogate(log: Tensor, advantages: Tensor, clip_low: float, clip_high: float) -> LossTerms:
    """The loss of each token for log-ratios of whatever kind, with the metrics `ratio` and `clip_fraction`."""
    loss, ratio, clipped = _ClippedSurrogate.apply(log, advantages, 1.0 - clip_low, 1.0 + clip_high)  # type: ignore[no-untyped-call]
    return LossTerms(loss=loss, metrics={"clip_fraction": clipped, "ratio": ratio})


class _ClippedSurrogate(torch.autograd.Function):
    """The gradient is -A r where the free term holds and 0 elsewhere: written down, it costs a third of recording every step."""

    @override
    @staticmethod
    def forward(ctx: Any, log: Tensor, advantages: Tensor, low: float, high: float) -> tuple[Tensor, Tensor, Tensor]:
        if lie_within(log, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT):
            ratio, saturated = log.exp(), None
        else:
            bounded = log.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
            saturated = bounded != log
            ratio = bounded.exp_()
        negative = -advantages
        loss = ratio.clamp(low, high).mul_(negative)
        free = negative * ratio
        clipped = loss > free
        torch.maximum(free, loss, out=loss)
        flat = clipped if saturated is None else saturated.logical_or_(clipped)
        # in memory that is at hand, and bytes convert faster than bools
        slope = free.copy_((~flat).view(torch.uint8)).mul_(negative)
        ctx.save_for_backward(slope, ratio)
        ctx.mark_non_differentiable(ratio, clipped)
        return loss, ratio, clipped

    @override
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        slope, ratio = ctx.saved_tensors
        return (grads[0] * slope).mul_(ratio), None, None, None

"""PPO's clipped surrogate, with one ratio per token (arXiv 1707.06347, equation 7; two bounds: arXiv 2503.14476).

    r = exp(logprobs - old_logprobs)
    loss = max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high))

Worked, both bounds 0.2: A = 1, -1, 2 and r = 0.5, 1, 1.5 give -0.5, 1, -2.4.
Limits: at r = 1 the gradient is -A. Beyond a bound, on the side that the advantage pushes to, the gradient is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from rl_agent.algo.base import LossTerms
from rl_agent.algo.ratio import bounded
from rl_agent.config.algo import LossConfig

if TYPE_CHECKING:
    from torch import Tensor

    from rl_agent.algo.base import LossInput


@dataclass(kw_only=True)
class PpoClipConfig(LossConfig):
    """PPO's clipped surrogate."""

    clip_low: float = 0.2
    """Distance below 1 at which the ratio is clipped."""
    clip_high: float = 0.28
    """Distance above 1 at which the ratio is clipped."""

    @override
    def build(self) -> PpoClip:
        return PpoClip(self)


class PpoClip:
    """See `PpoClipConfig`."""

    def __init__(self, config: PpoClipConfig) -> None:
        self.config = config

    def __call__(self, inputs: LossInput) -> LossTerms:
        """Return the loss of each token. `clip_fraction`: tokens that are clipped and give no gradient."""
        log = inputs.logprobs - inputs.old_logprobs
        return clipped_surrogate(log, inputs.advantages, self.config.clip_low, self.config.clip_high)


def clipped_surrogate(log: Tensor, advantages: Tensor, clip_low: float, clip_high: float) -> LossTerms:
    """Return the clipped loss of each token for any log-ratios: [t], with the metrics `ratio` and `clip_fraction`."""
    ratio = bounded(log).exp()
    free = -advantages * ratio
    clipped = -advantages * ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    return LossTerms(loss=free.maximum(clipped), metrics={"clip_fraction": clipped > free, "ratio": ratio.detach()})

"""CISPO: REINFORCE with a clipped importance weight, so that no token loses its gradient (arXiv 2506.13585, equation 4).

    loss = -stop(clip(r, 1 - clip_low, 1 + clip_high)) * A * log p

Worked: r = 1, 3, 9, 0.4 with bounds 1 and 4: weights 1, 3, 5, 0.4. The gradient is -weight * A.
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
class CispoConfig(LossConfig):
    """REINFORCE, weighted by a clipped ratio that carries no gradient."""

    clip_low: float = 1.0
    """Distance below 1; 1: no lower bound."""
    clip_high: float = 4.0
    """Distance above 1."""

    @override
    def build(self) -> Cispo:
        return Cispo(self)


class Cispo:
    """See `CispoConfig`."""

    def __init__(self, config: CispoConfig) -> None:
        self.config = config

    def __call__(self, inputs: LossInput) -> LossTerms:
        """Return the loss of each token. `clip_fraction`: tokens whose weight is clipped; they keep their gradient."""
        ratio = log_ratio(inputs.logprobs.detach(), inputs.old_logprobs).exp()
        weight = ratio.clamp(1.0 - self.config.clip_low, 1.0 + self.config.clip_high)
        loss = -weight * inputs.advantages * floored(inputs.logprobs)
        return LossTerms(loss=loss, metrics={"clip_fraction": weight != ratio, "ratio": ratio})

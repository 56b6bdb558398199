"""DPPO: the trust region bounds the divergence of a token's probability, not its ratio.

("Rethinking the Trust Region in LLM Reinforcement Learning", arXiv 2602.04879)

    dropped = A > 0 and p - q > 0 and D(q, p) > limit_high, or A < 0 and p - q < 0 and D(q, p) > limit_low
    loss = -A r * (not dropped) + tau * log(r)^2        p current, q old probability of the sampled token

    D = |p - q|                                           tv
    D = q log(q / p) + (1 - q) log((1 - q) / (1 - p))     kl, of "this token or another"

Worked, tv, limits 0.15: q = 0.5, p = 0.7, A = 1: dropped; A = -1: loss 1.4. A ratio of 3 at q = 0.01 is kept: |p - q| = 0.02.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from rl_agent.algo.base import LossTerms
from rl_agent.algo.ratio import log_ratio
from rl_agent.config.algo import LossConfig

if TYPE_CHECKING:
    from torch import Tensor

    from rl_agent.algo.base import LossInput

EDGE: Final = 1.0e-6
"""Distance that probabilities keep from 0 and 1 in the divergence."""


class Divergence(StrEnum):
    """Measure of how far a token's probability has moved."""

    tv = "tv"
    """Total variation of "this token or another": |p - q|."""
    kl = "kl"
    """Kullback-Leibler divergence of "this token or another"."""


@dataclass(kw_only=True)
class DppoConfig(LossConfig):
    """Drop tokens whose probability has moved too far and would move further."""

    divergence: Divergence = Divergence.tv
    limit_low: float = 0.15
    """Largest divergence of a token whose probability fell."""
    limit_high: float = 0.15
    """Largest divergence of a token whose probability rose."""
    tau: float = 0.0
    """Weight of the squared log-ratio, which pulls every token back."""

    @property
    @override
    def trains_without_advantage(self) -> bool:
        """True with the pull to the old policy."""
        return self.tau != 0.0

    @override
    def build(self) -> Dppo:
        return Dppo(self)


class Dppo:
    """See `DppoConfig`."""

    def __init__(self, config: DppoConfig) -> None:
        self.config = config

    def __call__(self, inputs: LossInput) -> LossTerms:
        """Return the loss of each token. `clip_fraction`: tokens that are dropped."""
        log = log_ratio(inputs.logprobs, inputs.old_logprobs)
        ratio = log.exp()
        current, old = inputs.logprobs.detach().exp(), inputs.old_logprobs.exp()
        apart = self._apart(current, old)
        rose = (inputs.advantages > 0) & (current > old) & (apart > self.config.limit_high)
        fell = (inputs.advantages < 0) & (current < old) & (apart > self.config.limit_low)
        dropped = rose | fell
        loss = (-inputs.advantages * ratio).masked_fill(dropped, 0.0) + self.config.tau * log.square()
        return LossTerms(loss=loss, metrics={"clip_fraction": dropped, "ratio": ratio.detach()})

    def _apart(self, current: Tensor, old: Tensor) -> Tensor:
        if self.config.divergence is Divergence.tv:
            return (current - old).abs()
        p, q = current.clamp(EDGE, 1 - EDGE), old.clamp(EDGE, 1 - EDGE)
        return q * (q / p).log() + (1 - q) * ((1 - q) / (1 - p)).log()

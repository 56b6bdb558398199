"""DPPO: the trust region is in the divergence of a token's probability, not in its ratio.

("Rethinking the Trust Region in LLM Reinforcement Learning", arXiv 2602.04879)

    dropped = A > 0 and p - q > 0 and D(q, p) > limit_high, or A < 0 and p - q < 0 and D(q, p) > limit_low
    loss = -A r * (not dropped) + tau * log(r)^2        p current, q old probability of the sampled token

    D = |p - q|                                           tv
    D = q log(q / p) + (1 - q) log((1 - q) / (1 - p))     kl, of "this token or another"

Worked, tv, limits 0.15: q = 0.5, p = 0.7, A = 1: dropped; A = -1: loss 1.4. A ratio of 3 at q = 0.01 is kept: |p - q| = 0.02.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from rl_agent.algo.base import LossTerms
from rl_agent.algo.ratio import log_ratio
from rl_agent.config.algo_loss import Divergence

if TYPE_CHECKING:
    from torch import Tensor

    from rl_agent.algo.base import LossInput

EDGE: Final = 1.0e-6
"""Distance that probabilities keep from 0 and 1 in the divergence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DppoLoss:
    """See `DppoLossConfig`."""

    divergence: Divergence
    limit_low: float
    limit_high: float
    tau: float

    @property
    def trains_without_advantage(self) -> bool:
        """The pull to the old policy does."""
        return self.tau != 0.0

    def __call__(self, inputs: LossInput) -> LossTerms:
        """`clip_fraction`: what is dropped."""
        log = log_ratio(inputs.logprobs, inputs.old_logprobs)
        ratio = log.exp()
        with torch.no_grad():
            current, old = inputs.logprobs.exp(), inputs.old_logprobs.exp()
            apart = self._apart(current, old)
            rose = (inputs.advantages > 0) & (current > old) & (apart > self.limit_high)
            fell = (inputs.advantages < 0) & (current < old) & (apart > self.limit_low)
            dropped = rose | fell
        policy = torch.where(dropped, torch.zeros_like(ratio), -inputs.advantages * ratio)
        loss = policy + self.tau * log.square() if self.tau else policy
        return LossTerms(loss=loss, metrics={"clip_fraction": dropped, "ratio": ratio.detach()})

    def _apart(self, current: Tensor, old: Tensor) -> Tensor:
        if self.divergence is Divergence.tv:
            return (current - old).abs()
        p, q = current.clamp(EDGE, 1 - EDGE), old.clamp(EDGE, 1 - EDGE)
        return q * (q / p).log() + (1 - q) * ((1 - q) / (1 - p)).log()

"""The penalty for leaving a frozen reference policy (arXiv 1909.08593; in the loss: arXiv 2402.03300, equation 4).

    penalty_t = coefficient * KL estimate of r = log p_reference - log p        in the reward or in the loss

Importance-weighted (in the loss), the estimate is one of the current policy though the sampler's tokens are looked at (arXiv
2512.02556, section 3.1); the output clamp comes after the weight. Worked, k3: log p = -1.69315, -1, -0.59453, reference -1, sampler -0.5, -1.5, -0.8: 0.0931, 0, 0.0886.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rl_agent.algo.kl.adaptive import adapted
from rl_agent.algo.kl.estimate import estimate
from rl_agent.algo.ratio import floored, log_ratio
from rl_agent.algo.scores import Need

if TYPE_CHECKING:
    from torch import Tensor

    from rl_agent.config.algo_parts import KlEstimator, KlPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class KlPenalty:
    """See `KlPenaltyConfig`."""

    place: KlPlace
    estimator: KlEstimator
    coefficient: float
    input_clamp: float | None
    output_clamp: float | None
    importance_weighted: bool
    target: float | None
    horizon: int
    reference: str | None

    @property
    def needs(self) -> frozenset[Need]:
        """The reference's log-probabilities."""
        return frozenset({Need.REFERENCE_LOGPROBS})

    def __call__(self, logprobs: Tensor, reference: Tensor, rollout_logprobs: Tensor | None) -> Tensor:
        """[t] float32, with a gradient through `logprobs`."""
        logprobs = floored(logprobs)
        apart = reference - logprobs
        value = estimate(apart, self.estimator, input_clamp=self.input_clamp)
        if self.importance_weighted and rollout_logprobs is not None:
            weight = log_ratio(logprobs, rollout_logprobs).exp()
            if self.input_clamp is not None:  # a clamped token has no gradient, through its weight neither
                weight = torch.where(apart.abs() > self.input_clamp, weight.detach(), weight)
            value = value * weight
        return value if self.output_clamp is None else value.clamp(-self.output_clamp, self.output_clamp)

    def next_coefficient(self, coefficient: float, measured: float, rollouts: int) -> float:
        """Raised when the policy is further away than `target`, lowered when it is nearer."""
        if self.target is None:
            return coefficient
        return adapted(coefficient, measured, target=self.target, horizon=self.horizon, rollouts=rollouts)

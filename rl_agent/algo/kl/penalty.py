"""Penalty for leaving a frozen reference policy (arXiv 1909.08593; in the loss: arXiv 2402.03300, equation 4).

    penalty_t = coefficient * KL estimate of r = log p_reference - log p        in the reward or in the loss

Importance-weighted (in the loss), the estimate is one of the current policy although the sampler's tokens are used (arXiv 2512.02556,
section 3.1). The output clamp comes after the weight. Worked, k3: log p = -1.69315, -1, -0.59453, reference -1, sampler -0.5, -1.5,
-0.8: 0.0931, 0, 0.0886.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from rl_agent.algo.divergence import KlEstimator, estimate
from rl_agent.algo.ratio import floored, log_ratio
from rl_agent.config.algo import KlConfig, KlPlace, Need
from rl_agent.config.plug_in import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from rl_agent.config.schema import Config

ADAPTATION_LIMIT: Final = 0.2
"""The paper's bound on the relative error of the divergence."""


@dataclass(kw_only=True)
class PenaltyConfig(KlConfig):
    """Penalty for leaving a frozen reference policy."""

    needs = frozenset({Need.REFERENCE_LOGPROBS})

    place: KlPlace = KlPlace.loss
    estimator: KlEstimator = KlEstimator.k3
    coefficient: float = 1.0e-3
    input_clamp: float | None = 20.0
    """Bound on |log-ratio|; null: only the bound that keeps numbers finite (20)."""
    output_clamp: float | None = 10.0
    """Bound on |estimate|; null: none."""
    importance_weighted: bool = False
    """In the loss: weight each token by current / sampler, which makes the estimate one of the current policy."""
    target: float | None = None
    """Divergence per token that the coefficient adapts to; null: the coefficient is constant."""
    horizon: int = 10_000
    """Number of rollouts over which the coefficient adapts."""
    reference: str | None = None
    """Hugging Face folder of the reference policy; null: the policy that training started from."""

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        """Yield a problem if the penalty has no gradient."""
        if self.place is KlPlace.loss and self.estimator is KlEstimator.k1 and not self.importance_weighted:
            yield Problem(
                "algo.kl.estimator",
                "k1 has no gradient in the mean when it is added to the loss.",
                "Set algo.kl.estimator=k3 (or k2) or algo.kl.importance_weighted=true, or choose algo/kl=penalty_in_reward.",
            )

    @override
    def build(self) -> Penalty:
        return Penalty(self)


class Penalty:
    """See `PenaltyConfig`."""

    def __init__(self, config: PenaltyConfig) -> None:
        self.config = config

    def __call__(self, logprobs: Tensor, reference: Tensor, rollout_logprobs: Tensor | None) -> Tensor:
        """Return the divergence of each token: [t] float32, with a gradient through `logprobs`."""
        config, logprobs = self.config, floored(logprobs)
        apart = reference - logprobs
        value = estimate(apart, config.estimator, input_clamp=config.input_clamp)
        if config.importance_weighted and rollout_logprobs is not None:
            weight = log_ratio(logprobs, rollout_logprobs).exp()
            if config.input_clamp is not None:
                # a clamped token has no gradient, neither through its value nor through its weight
                weight = weight.detach().where(apart.abs() > config.input_clamp, weight)
            value = value * weight
        return value if config.output_clamp is None else value.clamp(-config.output_clamp, config.output_clamp)

    def next_coefficient(self, coefficient: float, measured: float, rollouts: int) -> float:
        """Raise the coefficient if the policy is further away than `target`, lower it if the policy is nearer."""
        if self.config.target is None:
            return coefficient
        return adapted(coefficient, measured, target=self.config.target, horizon=self.config.horizon, rollouts=rollouts)


def adapted(coefficient: float, measured: float, *, target: float, horizon: int, rollouts: int) -> float:
    """Return the coefficient that moves a divergence toward its target (arXiv 1909.08593, section 2.2).

        b' = b * (1 + clip(measured / target - 1, -0.2, 0.2) * rollouts / horizon)

    Worked: b = 0.2, measured 0.2, target 0.1, horizon 100, 10 rollouts: 0.2 * 1.02.
    """
    error = min(max(measured / target - 1.0, -ADAPTATION_LIMIT), ADAPTATION_LIMIT)
    return coefficient * (1.0 + error * rollouts / horizon)

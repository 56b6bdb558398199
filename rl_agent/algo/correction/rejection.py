"""Rejection by an estimate of the divergence between sampler and proximal policy.

(estimators: Schulman 2020, "Approximating KL divergence"; by sequence: the rollout correction of verl)

    x = log(p_proximal / p_sampler);  k1 = -x, k2 = x^2 / 2, k3 = e^x - x - 1, absolute = |x|
    rejected = gathered estimate below `low` or above `high`        gathered: of the token, or sum, mean, max over its sequence

Worked, k3, high 0.1: x = 0.1: 0.0052, kept; x = 1: 0.718, rejected. k1 by mean is the geometric criterion: x = 0.5, -0.5, 0.3: -0.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from typing_extensions import override

from rl_agent.algo.base import CorrectionTerms
from rl_agent.algo.divergence import KlEstimator, estimate
from rl_agent.algo.ratio import sequence_max, sequence_mean, sequence_sum
from rl_agent.config.algo import CorrectionConfig

if TYPE_CHECKING:
    from torch import Tensor

    from rl_agent.algo.base import CorrectionInput


class Gathered(StrEnum):
    """Value of a sequence that is compared with the bounds."""

    token = "token"  # noqa: S105  as in text
    """Each token by itself."""
    sum = "sum"
    """The sum over the sequence's tokens."""
    mean = "mean"
    """The mean over the sequence's tokens. With k1 this is the geometric criterion."""
    max = "max"
    """The maximum over the sequence's tokens."""


@dataclass(kw_only=True)
class RejectionConfig(CorrectionConfig):
    """Reject tokens or sequences by an estimate of the divergence."""

    estimator: KlEstimator = KlEstimator.k3
    gathered: Gathered = Gathered.token
    low: float | None = None
    """Smallest estimate that is kept (for k1; the others are not negative); null: any."""
    high: float | None = 0.1
    """Largest estimate that is kept; null: any."""
    weighted: bool = False
    """Weight the tokens that are kept; false: they have weight 1."""

    @override
    def build(self) -> Rejection:
        return Rejection(self)


class Rejection:
    """See `RejectionConfig`."""

    def __init__(self, config: RejectionConfig) -> None:
        self.config = config

    def __call__(self, inputs: CorrectionInput) -> CorrectionTerms:
        """Return the weights of tokens."""
        low, high = self.config.low, self.config.high
        found = self._gathered(estimate(inputs.log_weights, self.config.estimator), inputs)
        rejected = (found < (-float("inf") if low is None else low)) | (
            found > (float("inf") if high is None else high)
        )
        weights = inputs.log_weights.exp() if self.config.weighted else found.new_ones(len(found))
        return CorrectionTerms(weights=weights.masked_fill(rejected, 0.0), corrected=rejected)

    def _gathered(self, values: Tensor, inputs: CorrectionInput) -> Tensor:
        gathers = {Gathered.sum: sequence_sum, Gathered.mean: sequence_mean, Gathered.max: sequence_max}
        if self.config.gathered is Gathered.token:
            return values
        return gathers[self.config.gathered](values, inputs.loss_mask, inputs.sequence)

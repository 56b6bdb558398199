"""Rejection by an estimate of the divergence between sampler and proximal policy.

(estimators: Schulman 2020, "Approximating KL divergence"; by sequence: the rollout correction of verl)

    x = log(p_proximal / p_sampler);  k1 = -x, k2 = x^2 / 2, k3 = e^x - x - 1, absolute = |x|
    rejected = gathered estimate below `low` or above `high`        gathered: of the token, or sum, mean, max over its sequence

Worked, k3, high 0.1: x = 0.1: 0.0052, kept; x = 1: 0.718, rejected. k1 by mean is the geometric criterion: x = 0.5, -0.5, 0.3: -0.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rl_agent.algo.base import CorrectionTerms
from rl_agent.algo.kl.estimate import estimate
from rl_agent.algo.ratio import sequence_max, sequence_mean, sequence_sum
from rl_agent.config.algo_parts import Gathered

if TYPE_CHECKING:
    from torch import Tensor

    from rl_agent.algo.base import CorrectionInput
    from rl_agent.config.algo_parts import KlEstimator, Proximal


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """See `RejectionConfig`."""

    proximal: Proximal
    estimator: KlEstimator
    gathered: Gathered
    low: float | None
    high: float | None
    weighted: bool

    def __call__(self, inputs: CorrectionInput) -> CorrectionTerms:
        """Weights of tokens."""
        found = self._gathered(estimate(inputs.log_weights, self.estimator), inputs)
        rejected = torch.zeros_like(inputs.loss_mask)
        if self.low is not None:
            rejected = rejected | (found < self.low)
        if self.high is not None:
            rejected = rejected | (found > self.high)
        weights = inputs.log_weights.exp() if self.weighted else torch.ones_like(found)
        return CorrectionTerms(weights=torch.where(rejected, torch.zeros_like(weights), weights), corrected=rejected)

    def _gathered(self, values: Tensor, inputs: CorrectionInput) -> Tensor:
        if self.gathered is Gathered.token:
            return values
        gather = {Gathered.sum: sequence_sum, Gathered.mean: sequence_mean, Gathered.max: sequence_max}[self.gathered]
        return gather(values, inputs.loss_mask, inputs.sequence)

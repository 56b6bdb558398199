"""Estimates of a KL divergence from one sample (Schulman 2020, "Approximating KL divergence"): x ~ p, r = log(q / p).

    k1 = -r        k2 = r^2 / 2        k3 = e^r - r - 1        absolute = |r|

k1 and k3 have the mean KL(p || q). Worked, r = 1, -14, -29: k1 -1, 14, 29; k2 0.5, 98, 420.5; k3 0.7183, 13, 28.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from rl_agent.algo.ratio import LOG_RATIO_LIMIT

if TYPE_CHECKING:
    from torch import Tensor


class KlEstimator(StrEnum):
    """Estimator of a divergence from one sample, r = log(reference / policy)."""

    k1 = "k1"
    """-r: unbiased, of any sign. Its gradient in a loss is zero in the mean, so use it in the reward."""
    k2 = "k2"
    """r^2 / 2: biased, small variance. Its gradient in a loss is that of the divergence."""
    k3 = "k3"
    """e^r - r - 1: unbiased, never negative."""
    absolute = "absolute"
    """|r|."""


def estimate(log_ratio: Tensor, estimator: KlEstimator, *, input_clamp: float | None = None) -> Tensor:
    """Return the estimate for each r: [t] float32. `input_clamp` bounds |r|; the gradient is 0 beyond."""
    r = log_ratio if input_clamp is None else log_ratio.clamp(-input_clamp, input_clamp)
    if estimator is KlEstimator.k1:
        return -r
    if estimator is KlEstimator.k2:
        return 0.5 * r.square()
    if estimator is KlEstimator.absolute:
        return r.abs()
    return r.clamp(max=LOG_RATIO_LIMIT).expm1() - r

"""Divergences from one sample (Schulman 2020, "Approximating KL divergence"): x ~ p, r = log(q / p).

    k1 = -r        k2 = r^2 / 2        k3 = e^r - r - 1        absolute = |r|

All but k2 and absolute have the mean KL(p || q). Worked, r = 1, -14, -29: k1 -1, 14, 29; k2 0.5, 98, 420.5; k3 0.7183, 13, 28.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_agent.algo.ratio import LOG_RATIO_LIMIT
from rl_agent.config.algo_parts import KlEstimator

if TYPE_CHECKING:
    from torch import Tensor


def estimate(log_ratio: Tensor, estimator: KlEstimator, *, input_clamp: float | None = None) -> Tensor:
    """[t] float32 r -> [t] float32. The clamp bounds |r|; beyond it there is no gradient."""
    r = log_ratio if input_clamp is None else log_ratio.clamp(-input_clamp, input_clamp)
    if estimator is KlEstimator.k1:
        return -r
    if estimator is KlEstimator.k2:
        return 0.5 * r.square()
    if estimator is KlEstimator.absolute:
        return r.abs()
    return r.clamp(max=LOG_RATIO_LIMIT).expm1() - r

"""pass@k from n rollouts per task, and its confidence interval over tasks."""

from __future__ import annotations

import math
from enum import StrEnum
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


class Interval(StrEnum):
    """Method of the confidence interval of a mean over tasks."""

    wilson = "wilson"
    """Wilson's score interval: never of width 0, but too wide if tasks have several rollouts."""
    bootstrap = "bootstrap"
    """Percentiles of resampled tasks: of width 0 if all tasks agree."""


RESAMPLES: Final = 10_000
"""Number of bootstrap resamples. Quantiles then vary by less than a percent of the interval's width."""


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the unbiased estimate of pass@k from n rollouts, of which c solved the task.

    pass@k is the probability that at least one of k rollouts solves the task (Chen et al. 2021, arXiv 2107.03374,
    equation 1):

        pass@k = E[ 1 - C(n - c, k) / C(n, k) ] = 1 - prod_{i = n - c + 1}^{n} (1 - k / i)

    This is the fraction of all k-subsets of the n rollouts with at least one of the c; 1 if fewer than k rollouts
    failed. The product avoids large binomials. (The obvious 1 - (1 - c / n)^k is biased: it is too low.) Example: n =
    4, c = 1, k = 2. 3 of the 6 pairs contain the solved rollout, so pass@2 = 0.5.

    Raises ValueError unless 0 <= c <= n and 1 <= k <= n.
    """
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"pass@k needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}")
    if n - c < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(n - c + 1, n + 1))


def interval(values: Sequence[float], kind: Interval, *, confidence: float, seed: int) -> tuple[float, float]:
    """Return a confidence interval of the mean of `values`: one value in [0, 1] per task.

    The sample is the tasks, not the rollouts. bootstrap: percentiles of the means of resampled tasks (Efron 1979).
    wilson: Wilson's score interval (1927) for the mean p of m tasks,

        ( p + z^2/2m  +-  z sqrt( p (1 - p) / m + z^2 / 4m^2 ) ) / ( 1 + z^2 / m )

    with z the normal quantile of (1 + confidence) / 2.

    It assumes a variance of p (1 - p) per task: exact for one rollout per task, too wide for more, and never of width
    0. Raises ValueError without values.
    """
    if not values:
        raise ValueError("interval: no values. Give the value of at least one task.")
    sample = np.asarray(values, dtype=np.float64)
    count, mean = len(sample), float(sample.mean())
    if kind is Interval.bootstrap:
        rng = np.random.default_rng(seed)
        means = np.concatenate(
            [sample[rng.integers(0, count, (100, count))].mean(axis=1) for _ in range(RESAMPLES // 100)]
        )
        low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
        return float(low), float(high)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    centre = mean + z * z / (2 * count)
    width = z * math.sqrt(mean * (1 - mean) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return max(0.0, (centre - width) / scale), min(1.0, (centre + width) / scale)

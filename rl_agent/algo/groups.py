"""Statistics of the rollouts of one group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from rl_agent.algo.batch import Bool, Int32


def group_means(values: npt.NDArray[Any], groups: Int32, weights: npt.NDArray[Any] | None = None) -> Any:
    """Return the (weighted) mean of each rollout's group, [R] float64; the rollout's own value where the weights sum to 0."""
    number = np.unique(groups, return_inverse=True)[1]
    own = values.astype(np.float64)
    factor = np.ones(len(own)) if weights is None else weights.astype(np.float64)
    total = np.bincount(number, weights=own * factor)[number]
    sums = np.bincount(number, weights=factor)[number]
    return np.where(sums > 0, total / np.where(sums > 0, sums, 1.0), own)


def group_bounds(values: npt.NDArray[Any], groups: Int32) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the smallest and the largest value of each rollout's group, [R] float64 each."""
    number = np.unique(groups, return_inverse=True)[1]
    count = int(number.max(initial=-1)) + 1
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, number, values)
    np.maximum.at(high, number, values)
    return low[number], high[number]


def has_variance(values: npt.NDArray[Any], groups: Int32) -> Bool:
    """Return True for rollouts whose group has two different values, [R] bool.

    Groups without variance have nothing to compare (DAPO, arXiv 2503.14476, section 3.2). Worked: rewards 1, 1 | 1, 0 | 0 of three
    groups: only the second has variance.
    """
    low, high = group_bounds(values, groups)
    differs: Bool = low != high
    return differs

"""What the rollouts of one group have in common. Without torch, for those who only ask whether a group says anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from rl_agent.algo.batch import Bool, Int32


def group_means(values: npt.NDArray[Any], groups: Int32, weights: npt.NDArray[Any] | None = None) -> Any:
    """[R] float64: the (weighted) mean of each rollout's group; the rollout's own value where the weights sum to 0."""
    number = np.unique(groups, return_inverse=True)[1]
    own = values.astype(np.float64)
    factor = np.ones(len(own)) if weights is None else weights.astype(np.float64)
    total = np.bincount(number, weights=own * factor)[number]
    sums = np.bincount(number, weights=factor)[number]
    return np.where(sums > 0, total / np.where(sums > 0, sums, 1.0), own)


def says_nothing(values: npt.NDArray[Any], groups: Int32) -> Bool:
    """[R] bool: the rollout's group has one member, or all its values are equal."""
    number = np.unique(groups, return_inverse=True)[1]
    count = int(number.max(initial=-1)) + 1
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, number, values)
    np.maximum.at(high, number, values)
    equal: Bool = (low == high)[number]
    return equal

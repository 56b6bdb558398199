"""The length reward: among the rollouts of a task, shorter is better (Kimi k1.5, arXiv 2501.12599, section 2.3.3).

    x = 0.5 - (length - shortest) / (longest - shortest)        of the group
    a success gets x, a failure min(x, 0); where all are of one length, 0

Worked: lengths 10, 20, 30, the last a failure: 0.5, 0, -0.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rl_agent.algo.batch import Bool, Float32, Int32


def length_rewards(lengths: Int32, groups: Int32, solved: Bool) -> Float32:
    """[R] int32 trained tokens, [R] int32 groups, [R] bool -> [R] float32 in [-0.5, 0.5]."""
    number = np.unique(groups, return_inverse=True)[1]
    count = int(number.max(initial=-1)) + 1
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, number, lengths)
    np.maximum.at(high, number, lengths)
    spread = (high - low)[number]
    place = (lengths - low[number]) / np.where(spread > 0, spread, 1.0)
    reward = np.where(spread > 0, 0.5 - place, 0.0)
    return np.where(solved, reward, np.minimum(reward, 0.0)).astype(np.float32)

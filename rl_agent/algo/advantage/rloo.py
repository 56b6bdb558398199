"""RLOO's advantage: a rollout's reward against the mean of the *others* of its task (arXiv 2402.14740, section 3.3).

    A_i = r_i - mean_{j != i} r_j = n / (n - 1) * (r_i - mean_g)

Worked: rewards 6, 3 in one group: A = 3, -3; a group of one: 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rl_agent.algo.advantage.groups import group_means, says_nothing
from rl_agent.algo.advantage.spread import to_tokens

if TYPE_CHECKING:
    from rl_agent.algo.batch import Float32, Int32, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class RlooAdvantage:
    """See `RlooAdvantageConfig`."""

    whiten: bool

    def __call__(self, batch: TrainBatch) -> Float32:
        """[T] float32."""
        return to_tokens(batch, leave_one_out(batch.returns(), batch.rollout_group), whiten=self.whiten)


def leave_one_out(rewards: Float32, groups: Int32) -> Float32:
    """[R] float32 rewards and [R] int32 groups -> [R] float32 advantages."""
    number, counts = np.unique(groups, return_inverse=True, return_counts=True)[1:]
    members = counts[number]
    centred = rewards - group_means(rewards, groups)
    advantages = np.where(says_nothing(rewards, groups), 0.0, centred * members / np.maximum(members - 1, 1))
    return advantages.astype(np.float32)

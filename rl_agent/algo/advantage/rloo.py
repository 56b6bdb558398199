"""RLOO's advantage: a rollout's reward minus the mean of the *other* rollouts of its task (arXiv 2402.14740, section 3.3).

    A_i = r_i - mean_{j != i} r_j = n / (n - 1) * (r_i - mean_g)

Worked: rewards 6, 3 in one group: A = 3, -3; a group of one: 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from rl_agent.algo.credit import to_tokens
from rl_agent.algo.groups import group_means, has_variance
from rl_agent.config.algo import AdvantageConfig

if TYPE_CHECKING:
    from rl_agent.algo.batch import Float32, Int32, TrainBatch


@dataclass(kw_only=True)
class RlooConfig(AdvantageConfig):
    """Reward minus the mean of the group's other rollouts."""

    compares_within_group = True

    whiten: bool = False
    """Whiten over the trained tokens of the batch: subtract their mean, divide by their standard deviation."""

    @override
    def build(self) -> Rloo:
        return Rloo(self)


class Rloo:
    """See `RlooConfig`."""

    def __init__(self, config: RlooConfig) -> None:
        self.config = config

    def __call__(self, batch: TrainBatch) -> Float32:
        """Return the advantages: [T] float32."""
        return to_tokens(batch, leave_one_out(batch.returns(), batch.rollout_group), whiten=self.config.whiten)


def leave_one_out(rewards: Float32, groups: Int32) -> Float32:
    """Return the advantage of each rollout: [R] float32 rewards and [R] int32 groups -> [R] float32."""
    number, counts = np.unique(groups, return_inverse=True, return_counts=True)[1:]
    members = counts[number]
    centered = rewards - group_means(rewards, groups)
    advantages = np.where(has_variance(rewards, groups), centered * members / np.maximum(members - 1, 1), 0.0)
    return advantages.astype(np.float32)

"""OPO's advantage: the baseline of least variance, a mean weighted by length (arXiv 2505.23585, equation 8).

    A_i = r_i - sum_j L_j r_j / sum_j L_j        L trained tokens of the rollout

Worked: rewards 1, 0 with 30 and 10 trained tokens: baseline 0.75, A = 0.25, -0.75. Made for exactly on-policy training.
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
class OpoConfig(AdvantageConfig):
    """Reward minus the group's mean weighted by length."""

    compares_within_group = True

    whiten: bool = False
    """Whiten over the trained tokens of the batch: subtract their mean, divide by their standard deviation."""

    @override
    def build(self) -> Opo:
        return Opo(self)


class Opo:
    """See `OpoConfig`."""

    def __init__(self, config: OpoConfig) -> None:
        self.config = config

    def __call__(self, batch: TrainBatch) -> Float32:
        """Return the advantages: [T] float32."""
        of_rollout = length_weighted(batch.returns(), batch.rollout_group, batch.trained_tokens())
        return to_tokens(batch, of_rollout, whiten=self.config.whiten)


def length_weighted(rewards: Float32, groups: Int32, lengths: Int32) -> Float32:
    """Return the advantage of each rollout: [R] float32 rewards, [R] int32 groups and lengths -> [R] float32."""
    advantages = rewards - group_means(rewards, groups, lengths)
    return np.where(has_variance(rewards, groups), advantages, 0.0).astype(np.float32)

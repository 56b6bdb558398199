"""OPO's advantage: the baseline of least variance, a mean weighted by length (arXiv 2505.23585, equation 8).

    A_i = r_i - sum_j L_j r_j / sum_j L_j        L trained tokens of the rollout

Worked: rewards 1, 0 with 30 and 10 trained tokens: baseline 0.75, A = 0.25, -0.75. Made for exactly on-policy training.
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
class OpoAdvantage:
    """See `OpoAdvantageConfig`."""

    whiten: bool

    def __call__(self, batch: TrainBatch) -> Float32:
        """[T] float32."""
        of_rollout = length_weighted(batch.returns(), batch.rollout_group, batch.trained_tokens())
        return to_tokens(batch, of_rollout, whiten=self.whiten)


def length_weighted(rewards: Float32, groups: Int32, lengths: Int32) -> Float32:
    """[R] float32 rewards, [R] int32 groups and lengths -> [R] float32 advantages."""
    advantages = rewards - group_means(rewards, groups, lengths)
    return np.where(says_nothing(rewards, groups), 0.0, advantages).astype(np.float32)

"""MaxRL's advantage: a success counts by how rare it is, as the gradient of log pass rate has it (arXiv 2602.02710).

    A_i = (r_i - mean_g) / (mean_g + epsilon)

Worked: rewards 6, 3: mean 4.5, A = +-1.5 / 4.5. Made for rewards that are not negative; a group whose mean is not above 0 says
nothing: A = 0.
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
class MaxRlAdvantage:
    """See `MaxRlAdvantageConfig`."""

    epsilon: float
    whiten: bool

    def __call__(self, batch: TrainBatch) -> Float32:
        """[T] float32."""
        of_rollout = by_pass_rate(batch.returns(), batch.rollout_group, epsilon=self.epsilon)
        return to_tokens(batch, of_rollout, whiten=self.whiten)


def by_pass_rate(rewards: Float32, groups: Int32, *, epsilon: float) -> Float32:
    """[R] float32 rewards and [R] int32 groups -> [R] float32 advantages."""
    mean = group_means(rewards, groups)
    silent = says_nothing(rewards, groups) | (mean <= 0.0)
    advantages = np.where(silent, 0.0, (rewards - mean) / np.where(silent, 1.0, mean + epsilon))
    return advantages.astype(np.float32)

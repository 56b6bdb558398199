"""GRPO's advantage: a rollout's reward against the other rollouts of its task (arXiv 2402.03300, section 4.1.2).

    A_i = (r_i - mean_g) / (std_g + epsilon)        std_g unbiased (n - 1); without `divide_by_std` the division is left out

Without the division it is Dr. GRPO's (arXiv 2503.20783). Worked: rewards 1, 0, 0, 1 in one group: mean 0.5, std 0.57735,
A = +-0.86602. Limits: a group of one, or one whose rewards are all equal, says nothing: A = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rl_agent.algo.advantage.spread import to_tokens

if TYPE_CHECKING:
    from rl_agent.algo.batch import Float32, Int32, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpoAdvantage:
    """See `GrpoAdvantageConfig`."""

    divide_by_std: bool
    epsilon: float
    whiten: bool

    def __call__(self, batch: TrainBatch) -> Float32:
        """[T] float32."""
        of_rollout = group_advantages(
            batch.returns(), batch.rollout_group, divide_by_std=self.divide_by_std, epsilon=self.epsilon
        )
        return to_tokens(batch, of_rollout, whiten=self.whiten)


def group_advantages(rewards: Float32, groups: Int32, *, divide_by_std: bool, epsilon: float) -> Float32:
    """[R] float32 rewards and [R] int32 groups -> [R] float32 advantages."""
    advantages = np.zeros(len(rewards), dtype=np.float64)
    for group in np.unique(groups):
        members = groups == group
        own = rewards[members].astype(np.float64)
        if len(own) < 2 or own.min() == own.max():
            continue
        centred = own - own.mean()
        advantages[members] = centred / (own.std(ddof=1) + epsilon) if divide_by_std else centred
    return advantages.astype(np.float32)

"""GRPO's advantage: a rollout's reward relative to the other rollouts of its task (arXiv 2402.03300, section 4.1.2).

    A_i = (r_i - mean_g) / (std_g + epsilon)        std_g unbiased (n - 1); without `divide_by_std` there is no division

Without the division it is Dr. GRPO's (arXiv 2503.20783). Worked: rewards 1, 0, 0, 1 in one group: mean 0.5, std 0.57735,
A = +-0.86602. Limits: A = 0 for a group of one, and for a group whose rewards are all equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from rl_agent.algo.credit import to_tokens
from rl_agent.config.algo import AdvantageConfig

if TYPE_CHECKING:
    from rl_agent.algo.batch import Float32, Int32, TrainBatch


@dataclass(kw_only=True)
class GrpoConfig(AdvantageConfig):
    """Reward minus the group's mean, divided by the group's standard deviation."""

    compares_within_group = True

    divide_by_std: bool = True
    """False: Dr. GRPO."""
    epsilon: float = 1.0e-6
    """Added to the standard deviation."""
    whiten: bool = False
    """Whiten over the trained tokens of the batch: subtract their mean, divide by their standard deviation."""

    @override
    def build(self) -> Grpo:
        return Grpo(self)


class Grpo:
    """See `GrpoConfig`."""

    def __init__(self, config: GrpoConfig) -> None:
        self.config = config

    def __call__(self, batch: TrainBatch) -> Float32:
        """Return the advantages: [T] float32."""
        of_rollout = group_advantages(
            batch.returns(),
            batch.rollout_group,
            divide_by_std=self.config.divide_by_std,
            epsilon=self.config.epsilon,
        )
        return to_tokens(batch, of_rollout, whiten=self.config.whiten)


def group_advantages(rewards: Float32, groups: Int32, *, divide_by_std: bool, epsilon: float) -> Float32:
    """Return the advantage of each rollout: [R] float32 rewards and [R] int32 groups -> [R] float32."""
    advantages = np.zeros(len(rewards), dtype=np.float64)
    for group in np.unique(groups):
        members = groups == group
        own = rewards[members].astype(np.float64)
        if len(own) < 2 or own.min() == own.max():
            continue
        centered = own - own.mean()
        advantages[members] = centered / (own.std(ddof=1) + epsilon) if divide_by_std else centered
    return advantages.astype(np.float32)

"""MaxRL's advantage: a success counts more if it is rare, as in the gradient of the log pass rate (arXiv 2602.02710).

    A_i = (r_i - mean_g) / (mean_g + epsilon)

Worked: rewards 6, 3: mean 4.5, A = +-1.5 / 4.5. Made for rewards that are not negative: A = 0 for a group whose mean is not above 0.
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
class MaxRlConfig(AdvantageConfig):
    """Reward minus the group's mean, divided by that mean."""

    compares_within_group = True

    epsilon: float = 1.0e-6
    """Added to the mean."""
    whiten: bool = False
    """Whiten over the trained tokens of the batch: subtract their mean, divide by their standard deviation."""

    @override
    def build(self) -> MaxRl:
        return MaxRl(self)


class MaxRl:
    """See `MaxRlConfig`."""

    def __init__(self, config: MaxRlConfig) -> None:
        self.config = config

    def __call__(self, batch: TrainBatch) -> Float32:
        """Return the advantages: [T] float32."""
        of_rollout = by_pass_rate(batch.returns(), batch.rollout_group, epsilon=self.config.epsilon)
        return to_tokens(batch, of_rollout, whiten=self.config.whiten)


def by_pass_rate(rewards: Float32, groups: Int32, *, epsilon: float) -> Float32:
    """Return the advantage of each rollout: [R] float32 rewards and [R] int32 groups -> [R] float32."""
    mean = group_means(rewards, groups)
    compares = has_variance(rewards, groups) & (mean > 0.0)
    advantages = np.where(compares, (rewards - mean) / np.where(compares, mean + epsilon, 1.0), 0.0)
    return advantages.astype(np.float32)

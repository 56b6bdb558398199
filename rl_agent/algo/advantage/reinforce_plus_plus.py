"""REINFORCE++'s advantage: discounted returns of tokens, whitened over the whole batch (arXiv 2501.03262).

    G_t = sum_{k >= t} gamma^(k - t) r_k        over the rollout's trained tokens; the reward comes with the last
    A_t = (G_t - mean) / std                    over all trained tokens of the batch

With `baseline` the group's mean is subtracted from the rewards first (REINFORCE++-baseline, section 3.2; groups of one, and groups
whose rewards are all equal, then give 0 before whitening). Worked: r = 1, 2, 3 and gamma = 0.5: G = 2.75, 3.5, 3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from rl_agent.algo.credit import discounted_sums, trajectories, whitened
from rl_agent.algo.groups import group_means, has_variance
from rl_agent.config.algo import AdvantageConfig

if TYPE_CHECKING:
    from rl_agent.algo.batch import Float32, TrainBatch


@dataclass(kw_only=True)
class ReinforcePlusPlusConfig(AdvantageConfig):
    """Discounted returns, whitened over the batch."""

    gamma: float = 1.0
    """Discount of a reward per trained token before it."""
    baseline: bool = False
    """Subtract the group's mean reward first."""
    whiten: bool = True
    """Whiten over the trained tokens of the batch: subtract their mean, divide by their standard deviation."""

    @override
    def build(self) -> ReinforcePlusPlus:
        return ReinforcePlusPlus(self)


class ReinforcePlusPlus:
    """See `ReinforcePlusPlusConfig`."""

    def __init__(self, config: ReinforcePlusPlusConfig) -> None:
        self.config = config

    def __call__(self, batch: TrainBatch) -> Float32:
        """Return the advantages: [T] float32, 0 at tokens that do not train."""
        if self.config.baseline:
            centered = batch.rewards - group_means(batch.rewards, batch.rollout_group)
            compares = has_variance(batch.rewards, batch.rollout_group)
            batch = replace(batch, rewards=np.where(compares, centered, 0.0).astype(np.float32))
        own = trajectories(batch)
        returns = discounted_sums(own.rewards, own.lengths, self.config.gamma)
        return own.spread(whitened(returns) if self.config.whiten else returns, len(batch.tokens))

"""REINFORCE++'s advantage: discounted returns of tokens, whitened over the whole batch (arXiv 2501.03262).

    G_t = sum_{k >= t} gamma^(k - t) r_k        over the rollout's trained tokens; the reward comes with the last
    A_t = (G_t - mean) / std                    over all trained tokens of the batch

With `baseline` the group's mean is taken off the rewards first (REINFORCE++-baseline, section 3.2; groups of one, and those whose
rewards are all equal, then give nothing before whitening). Worked: r = 1, 2, 3 and gamma = 0.5: G = 2.75, 3.5, 3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rl_agent.algo.advantage.discount import discounted_sums
from rl_agent.algo.advantage.groups import group_means, says_nothing
from rl_agent.algo.advantage.spread import standardised
from rl_agent.algo.advantage.trajectory import trajectories

if TYPE_CHECKING:
    from rl_agent.algo.batch import Float32, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinforcePlusPlusAdvantage:
    """See `ReinforcePlusPlusAdvantageConfig`."""

    gamma: float
    baseline: bool
    whiten: bool

    def __call__(self, batch: TrainBatch) -> Float32:
        """[T] float32, 0 at tokens that do not train."""
        if self.baseline:
            centred = batch.rewards - group_means(batch.rewards, batch.rollout_group)
            silent = says_nothing(batch.rewards, batch.rollout_group)
            batch = replace(batch, rewards=np.where(silent, 0.0, centred).astype(np.float32))
        own = trajectories(batch)
        returns = discounted_sums(own.earned(), own.lengths, self.gamma)
        if self.whiten:
            returns = standardised(returns)
        return own.spread(returns, len(batch.tokens))

"""ReMax's advantage: a rollout's reward against that of the greedy rollout of its task (arXiv 2310.10505, equation 6).

    A_i = r_i - r_greedy

Worked: rewards 1, 0, greedy 1: A = 0, -1; the greedy one itself gets 0 and never trains. A group whose greedy rollout is missing
(infrastructure broke it) says nothing: A = 0. With several greedy rollouts their mean is the baseline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rl_agent.algo.advantage.groups import group_means
from rl_agent.algo.advantage.spread import to_tokens
from rl_agent.errors import LawError

if TYPE_CHECKING:
    from rl_agent.algo.batch import Bool, Float32, Int32, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class RemaxAdvantage:
    """See `RemaxAdvantageConfig`."""

    greedy_rollouts: int
    whiten: bool

    def __call__(self, batch: TrainBatch) -> Float32:
        """[T] float32. Raises LawError for a batch that does not say which rollouts are greedy."""
        if batch.facts is None:
            raise LawError("algo/advantage=remax needs to know which rollouts are greedy, but the batch has no facts")
        of_rollout = against_greedy(batch.returns(), batch.rollout_group, batch.facts.greedy)
        return to_tokens(batch, of_rollout, whiten=self.whiten)


def against_greedy(rewards: Float32, groups: Int32, greedy: Bool) -> Float32:
    """[R] float32 rewards, [R] int32 groups, [R] bool -> [R] float32 advantages."""
    baseline = group_means(rewards, groups, greedy)
    return np.where(greedy, 0.0, rewards - baseline).astype(np.float32)

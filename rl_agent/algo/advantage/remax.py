"""ReMax's advantage: a rollout's reward minus that of the greedy rollout of its task (arXiv 2310.10505, equation 6).

    A_i = r_i - r_greedy

Worked: rewards 1, 0, greedy 1: A = 0, -1. The greedy rollout gets 0 and never trains. A = 0 for a group whose greedy rollout is missing
(infrastructure broke it). With several greedy rollouts their mean is the baseline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from rl_agent.algo.credit import to_tokens
from rl_agent.algo.groups import group_means
from rl_agent.config.algo import AdvantageConfig
from rl_agent.config.plug_in import Problem
from rl_agent.errors import LawError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.algo.batch import Bool, Float32, Int32, TrainBatch
    from rl_agent.config.schema import Config


@dataclass(kw_only=True)
class RemaxConfig(AdvantageConfig):
    """Reward minus that of a greedy rollout of the same task."""

    greedy_rollouts: int = 1
    """Number of a group's `algo.group_size` rollouts that are sampled at temperature 0. They never train."""
    whiten: bool = False
    """Whiten over the trained tokens of the batch: subtract their mean, divide by their standard deviation."""

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        """Yield a problem if a group has no greedy rollout, or no other."""
        yield from super().problems(config)
        if not 1 <= self.greedy_rollouts < (size := config.algo.group_size):
            yield Problem(
                "algo.advantage.greedy_rollouts",
                f"{self.greedy_rollouts} of algo.group_size={size} rollouts leave none to train, or none to compare with.",
                "Set it to 1, with algo.group_size at least 2.",
            )

    @override
    def build(self) -> Remax:
        return Remax(self)


class Remax:
    """See `RemaxConfig`."""

    def __init__(self, config: RemaxConfig) -> None:
        self.config = config

    def __call__(self, batch: TrainBatch) -> Float32:
        """Return the advantages: [T] float32. Raises LawError if the batch does not say which rollouts are greedy."""
        if batch.facts is None:
            raise LawError("algo/advantage=remax: the batch does not say which rollouts are greedy")
        of_rollout = against_greedy(batch.returns(), batch.rollout_group, batch.facts.greedy)
        return to_tokens(batch, of_rollout, whiten=self.config.whiten)


def against_greedy(rewards: Float32, groups: Int32, greedy: Bool) -> Float32:
    """Return the advantage of each rollout: [R] float32 rewards, [R] int32 groups, [R] bool -> [R] float32."""
    baseline = group_means(rewards, groups, greedy)
    return np.where(greedy, 0.0, rewards - baseline).astype(np.float32)

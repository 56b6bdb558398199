"""Pass@k training: the group's chance that one of k rollouts succeeds, in closed form (arXiv 2508.10751, section 2.3).

With n rollouts of which m fail, R = 1 - C(m, k) / C(n, k) and s = sqrt(R (1 - R)):

    A of a success = (1 - R) / s
    A of a failure = (1 - R - C(m - 1, k - 1) / C(n - 1, k - 1)) / s

Worked: n = 4, m = 2, k = 2: R = 1 - 1/6, s = 0.37268; success 0.44721, failure (1/6 - 1/3) / s = -0.44721. k = 1 is GRPO with the
biased deviation. Limits: where every set of k succeeds or none does, s = 0 and A = 0; so with fewer than k failures.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, sqrt
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from rl_agent.algo.credit import to_tokens
from rl_agent.config.algo import AdvantageConfig
from rl_agent.config.plug_in import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.algo.batch import Float32, Int32, TrainBatch
    from rl_agent.config.schema import Config


@dataclass(kw_only=True)
class PassAtKConfig(AdvantageConfig):
    """The chance that one of k rollouts succeeds."""

    k: int = 4
    success: float = 1.0
    """Smallest reward of a success."""
    whiten: bool = False
    """Whiten over the trained tokens of the batch: subtract their mean, divide by their standard deviation."""

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        """Yield a problem if a group has fewer than k rollouts."""
        yield from super().problems(config)
        if self.k > (size := config.algo.group_size):
            yield Problem(
                "algo.advantage.k",
                f"{self.k} is more than algo.group_size={size}.",
                "Lower it, or raise algo.group_size.",
            )

    @override
    def build(self) -> PassAtK:
        return PassAtK(self)


class PassAtK:
    """See `PassAtKConfig`."""

    def __init__(self, config: PassAtKConfig) -> None:
        self.config = config

    def __call__(self, batch: TrainBatch) -> Float32:
        """Return the advantages: [T] float32."""
        of_rollout = pass_at_k(batch.rewards, batch.rollout_group, k=self.config.k, success=self.config.success)
        return to_tokens(batch, of_rollout, whiten=self.config.whiten)


def pass_at_k(rewards: Float32, groups: Int32, *, k: int, success: float) -> Float32:
    """Return the advantage of each rollout: [R] float32 rewards (at least `success` succeeds), [R] int32 groups -> [R] float32."""
    advantages = np.zeros(len(rewards), dtype=np.float64)
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        solved = rewards[members] >= success
        size, failures = len(members), int((~solved).sum())
        if size < max(k, 2):
            continue
        none_of_k = comb(failures, k) / comb(size, k)
        deviation = sqrt(none_of_k * (1.0 - none_of_k))
        if deviation == 0.0:
            continue
        failed_beside = comb(failures - 1, k - 1) / comb(size - 1, k - 1) if failures else 0.0
        advantages[members] = np.where(solved, none_of_k, none_of_k - failed_beside) / deviation
    return advantages.astype(np.float32)

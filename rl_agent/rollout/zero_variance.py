"""Groups with nothing to compare: dynamic sampling puts other tasks in their place (DAPO, arXiv 2503.14476, section 3.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rl_agent.algo.groups import has_variance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rl_agent.config.algo import AlgorithmConfig
    from rl_agent.rollout.group import Rollout

REASON = "zero_variance"


def dropped_groups(algo: AlgorithmConfig) -> Callable[[Sequence[Rollout]], str | None]:
    """Why a complete group will not train under `algo`; the function says None for a group that does.

    It is what `algo.shaping` would leave out of the batch: graded rewards count, a greedy baseline's too. A group without any reward is
    no evidence: it stays.
    """
    if not algo.shaping.drop_zero_variance:
        return lambda _: None

    def drop(rollouts: Sequence[Rollout]) -> str | None:
        rewards = np.array([one.reward for one in rollouts if one.reward is not None], dtype=np.float32)
        if not len(rewards) or has_variance(rewards, np.zeros(len(rewards), dtype=np.int32)).any():
            return None
        return REASON

    return drop

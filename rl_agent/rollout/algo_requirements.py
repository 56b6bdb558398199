"""Requirements of the algorithm on rollouts: greedy baselines (ReMax), and no groups without variance.

Dynamic sampling replaces groups whose rewards are all equal by other tasks (DAPO, arXiv 2503.14476, section 3.2).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rl_agent.algo.groups import has_variance

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from rl_agent.config.algo import AlgorithmConfig
    from rl_agent.rollout.group import EpisodeRequest, Rollout

    RunEpisode = Callable[[EpisodeRequest], Awaitable[Rollout]]

REASON = "zero_variance"


def with_greedy_baselines(run_episode: RunEpisode, algo: AlgorithmConfig) -> RunEpisode:
    """Return `run_episode` with the last `greedy_rollouts` members of each group sampled at temperature 0."""
    greedy = algo.advantage.greedy_rollouts
    if not greedy:
        return run_episode

    async def run(request: EpisodeRequest) -> Rollout:
        return await run_episode(replace(request, greedy=request.slot.member >= algo.group_size - greedy))

    return run


def dropped_groups(algo: AlgorithmConfig) -> Callable[[Sequence[Rollout]], str | None]:
    """Return a function that gives the reason why `algo` drops a complete group, or None if the group trains.

    It drops the groups that `algo.shaping` would leave out of the batch. All rewards count, also those of greedy
    baselines. A group without any reward stays, since it is no evidence.
    """
    if not algo.shaping.drop_zero_variance:
        return lambda _: None

    def drop(rollouts: Sequence[Rollout]) -> str | None:
        rewards = np.array([one.reward for one in rollouts if one.reward is not None], dtype=np.float32)
        if not len(rewards) or has_variance(rewards, np.zeros(len(rewards), dtype=np.int32)).any():
            return None
        return REASON

    return drop

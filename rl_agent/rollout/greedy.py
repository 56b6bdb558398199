"""Greedy baselines: sample the last rollouts of each group at temperature 0 (ReMax)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rl_agent.config.algo import AlgorithmConfig
    from rl_agent.rollout.group import EpisodeRequest, Rollout

    RunEpisode = Callable[[EpisodeRequest], Awaitable[Rollout]]


def with_greedy_baselines(run_episode: RunEpisode, algo: AlgorithmConfig) -> RunEpisode:
    """Wrap `run_episode` so that the last `algo.advantage.greedy_rollouts` episodes of each group are greedy."""
    greedy = algo.advantage.greedy_rollouts
    if not greedy:
        return run_episode

    async def run(request: EpisodeRequest) -> Rollout:
        member = int(request.rollout_id.rpartition("-")[2])  # its place in the group, as the driver names it
        return await run_episode(replace(request, greedy=member >= algo.group_size - greedy))

    return run

"""Greedy baselines: the last rollouts of each group are sampled at temperature 0, for the others to be compared with (ReMax)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rl_agent.rollout.group import EpisodeRequest, Rollout

    RunEpisode = Callable[[EpisodeRequest], Awaitable[Rollout]]


def with_greedy_baselines(run_episode: RunEpisode, algo: Any) -> RunEpisode:
    """`run_episode`, asked for a greedy episode where `algo.advantage.greedy_rollouts` says so; itself where nothing does."""
    greedy = getattr(algo.advantage, "greedy_rollouts", 0)
    if not greedy:
        return run_episode

    async def run(request: EpisodeRequest) -> Rollout:
        return await run_episode(replace(request, greedy=request.slot.member >= algo.group_size - greedy))

    return run

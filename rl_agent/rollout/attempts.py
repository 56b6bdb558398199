"""The retry loop: an attempt, a pause, the next attempt, until a result is final."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rl_agent.rollout.failures import FailurePolicy
    from rl_agent.rollout.group import EpisodeRequest, Rollout

RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")


async def run_attempts(
    request: RequestT,
    run: Callable[[RequestT], Awaitable[ResultT]],
    *,
    pause_s: Callable[[RequestT, ResultT], float | None],
    rest: Callable[[RequestT, ResultT, float], Awaitable[None]],
    again: Callable[[RequestT, ResultT], RequestT],
) -> tuple[RequestT, ResultT]:
    """Run attempts until one is final, and return its request and its result.

    `pause_s`: seconds until the next attempt, or None for a final result. `rest`: reports the failed attempt, and
    returns when the next attempt may start. `again`: the request of the next attempt.
    """
    while True:
        result = await run(request)
        pause = pause_s(request, result)
        if pause is None:
            return request, result
        await rest(request, result, pause)
        request = again(request, result)


async def run_episode_attempts(
    request: EpisodeRequest,
    run_episode: Callable[[EpisodeRequest], Awaitable[Rollout]],
    failures: FailurePolicy,
    rest: Callable[[EpisodeRequest, Rollout, float], Awaitable[None]],
) -> tuple[EpisodeRequest, Rollout]:
    """Run an episode again while infrastructure breaks it and `failures` allows another attempt. See `run_attempts`.

    Raises InfraError when too many rollouts are broken.
    """
    loop = asyncio.get_running_loop()
    return await run_attempts(
        request,
        lambda order: failures.contained(run_episode, order),
        pause_s=lambda order, rollout: failures.observe(order.slot, rollout, loop.time()),
        rest=rest,
        again=lambda order, rollout: order.again(rollout),
    )

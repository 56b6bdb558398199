"""Sets the pace of admission while a run goes on: follows the engine's load, and looks again whether an outage is over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from rl_agent.rollout.concurrency import AdaptiveLimit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rl_agent.config.rollout import RolloutConfig
    from rl_agent.engine.base import EngineLoad
    from rl_agent.rollout.driver import Driver

_EVERY_S: Final = 1.0


async def pace(driver: Driver, rollout: RolloutConfig, load: Callable[[], Awaitable[EngineLoad | None]]) -> None:
    """Runs until it is cancelled. Raises InfraError for an outage that does not end."""
    adaptive = None
    if rollout.adaptive_concurrency:
        least = min(rollout.min_concurrent, rollout.max_concurrent)
        adaptive = AdaptiveLimit(least=least, most=rollout.max_concurrent, value=least)
        driver.limit(adaptive.value)
    while True:
        await asyncio.sleep(_EVERY_S)
        if adaptive is None:
            driver.limit(None)
        elif (seen := await load()) is not None:
            driver.limit(adaptive.observe(seen, driver.running))

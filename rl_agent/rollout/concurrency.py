"""Limit on concurrent rollouts, which follows the load of the engine. It also polls for the end of an outage."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rl_agent.config.rollout import RolloutConfig
    from rl_agent.engine.base import EngineLoad
    from rl_agent.rollout.driver import Driver

_EVERY_S: Final = 1.0

_FULL: Final = 0.92
"""Usage of the KV cache above which vLLM soon preempts running requests and recomputes them."""
_ROOM: Final = 0.75
"""Usage of the KV cache below which the limit rises."""
_LESS: Final = 0.85
"""Factor by which the limit falls."""
_SETTLE: Final = 10
"""Number of observations between two changes, so that the effect of a change shows before the next one."""


@dataclass(slots=True, kw_only=True)
class AdaptiveLimit:
    """Limit by additive increase and multiplicative decrease. Call `observe` about once per second."""

    least: int
    most: int
    value: int
    _quiet: int = 0

    def observe(self, load: EngineLoad, running: int) -> int:
        """Return the new limit.

        `running`: current rollouts, most of which wait for their agent's tools, not for the engine.
        """
        used = load.kv_cache_usage or 0.0
        if self._quiet:
            self._quiet -= 1
        elif load.waiting or used > _FULL:
            self._change(int(min(self.value, max(running, self.least)) * _LESS))
        elif used < _ROOM and running >= self.value:
            self._change(self.value + max(1, self.value // 16))
        return self.value

    def _change(self, wanted: int) -> None:
        value = min(self.most, max(self.least, wanted))
        if value != self.value:
            self.value = value
            self._quiet = _SETTLE


async def adapt_limit(driver: Driver, rollout: RolloutConfig, load: Callable[[], Awaitable[EngineLoad | None]]) -> None:
    """Adapt the limit of `driver` until cancelled. Raises InfraError if an outage lasts too long."""
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

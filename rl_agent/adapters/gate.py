"""Time slicing of short CPU work, so that many requests at once do not block the event loop for long."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_SHARE_S: Final = 0.005
"""CPU time after which control returns to the event loop."""


class LoopGate:
    """Admits pieces of work in order of arrival, a few milliseconds per iteration of the event loop.

    Shared by the sessions of a server.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._spent_s = 0.0

    @asynccontextmanager
    async def piece(self) -> AsyncIterator[None]:
        """Run a piece of work that does not await. Use a thread for work that takes much longer."""
        async with self._lock:
            started = time.perf_counter()
            yield
            self._spent_s += time.perf_counter() - started
            if self._spent_s > _SHARE_S:
                self._spent_s = 0.0
                await asyncio.sleep(0)  # the lock stays held, so new arrivals wait for a later iteration

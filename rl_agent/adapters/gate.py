"""Spreads work of milliseconds over the iterations of the event loop, so that sixty requests at once do not stop it sixty times as long."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_SHARE_S: Final = 0.005
"""Work of this long passes before the loop goes round."""


class LoopGate:
    """Lets pieces of work through in the order of arrival, a few milliseconds of them per iteration of the loop.

    Shared by the sessions of a server.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._spent_s = 0.0

    @asynccontextmanager
    async def piece(self) -> AsyncIterator[None]:
        """Around work that does not await; what takes much longer belongs into a thread instead."""
        async with self._lock:
            started = time.perf_counter()
            yield
            self._spent_s += time.perf_counter() - started
            if self._spent_s > _SHARE_S:
                self._spent_s = 0.0
                await asyncio.sleep(0)  # the lock is held on to: who comes in this iteration waits for a later one

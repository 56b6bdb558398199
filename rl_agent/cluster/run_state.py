"""What the parts of a cluster tell each other: that something changed, or that the run must end; and how often is too often."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class RunState:
    """Waits are woken by every change and end with the error that ends the run."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._error: Exception | None = None

    def changed(self) -> None:
        """Wake whoever waits."""
        self._event.set()
        self._event = asyncio.Event()

    def end(self, error: Exception) -> None:
        """The run cannot go on; the first reason counts."""
        if self._error is None:
            self._error = error
        self.changed()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds`. Raises what ends the run."""
        while True:
            if self._error is not None:
                raise self._error
            if holds():
                return
            await self._event.wait()


class RestartLimit:
    """At most `most` restarts in any `window_s` seconds."""

    def __init__(self, most: int, window_s: float) -> None:
        self.most = most
        self.window_s = window_s
        self._times: deque[float] = deque()

    def allows(self, now: float) -> bool:
        """Whether there may be one now; it counts if so."""
        while self._times and now - self._times[0] > self.window_s:
            self._times.popleft()
        if len(self._times) >= self.most:
            return False
        self._times.append(now)
        return True

    def message(self, who: str, reason: BaseException) -> str:
        """The report of a run that ends because of it."""
        return (
            f"{who} was lost {self.most + 1} times within {self.window_s:.0f} s; the last time: {reason} "
            "Remedy: look at its log in the run folder's logs/, then continue with resume=<run folder>; "
            "cluster.max_restarts and cluster.restart_window_s say how often is too often."
        )

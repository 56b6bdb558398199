"""Shared state of a cluster: changes to wait for, the error that ends the run, and limits on restarts."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class RunState:
    """Notification of changes.

    Every change wakes all waits, and the error that ends the run is raised from all of them.
    """

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._error: Exception | None = None

    def changed(self) -> None:
        """Wake up all waits."""
        self._event.set()
        self._event = asyncio.Event()

    def end(self, error: Exception) -> None:
        """End the run with an error. Only the first error counts."""
        if self._error is None:
            self._error = error
        self.changed()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds` is true. Raises the error that ends the run."""
        while True:
            if self._error is not None:
                raise self._error
            if holds():
                return
            await self._event.wait()


class RestartLimit:
    """Limit of `most` restarts within any `window_s` seconds."""

    def __init__(self, most: int, window_s: float) -> None:
        self.most = most
        self.window_s = window_s
        self._times: deque[float] = deque()

    def allows(self, now: float) -> bool:
        """Return whether a restart is allowed now. An allowed restart is counted."""
        while self._times and now - self._times[0] > self.window_s:
            self._times.popleft()
        if len(self._times) >= self.most:
            return False
        self._times.append(now)
        return True

    def message(self, who: str, reason: BaseException) -> str:
        """Return the error message of a run that exceeds the limit."""
        return (
            f"{who} was lost {self.most + 1} times within {self.window_s:.0f} s. Last error: {reason} "
            "Look at its log in logs/ of the run folder, then continue with resume=<run folder>. "
            "cluster.max_restarts and cluster.restart_window_s set the limit."
        )

"""Turns to boot: so many at the same time, so many a second, counted over all processes of this machine."""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LOOK_AGAIN_S: Final = 0.05


class BootGate:
    """Slots are locked files, which the kernel frees with the process that holds them, however it ends."""

    def __init__(self, folder: Path, *, concurrency: int, per_s: float | None) -> None:
        self._folder = folder
        self._concurrency = concurrency
        self._interval_s = 0.0 if per_s is None else 1.0 / per_s
        self._own = asyncio.Semaphore(concurrency)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """A turn to boot, for as long as the context lasts."""
        async with self._own:  # within a process, turns come in order; only processes look for a free slot
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = await self._slot()
            try:
                await asyncio.sleep(self._wait_s())
                yield
            finally:
                os.close(fd)

    async def _slot(self) -> int:
        while True:
            for number in range(self._concurrency):
                fd = os.open(self._folder / f"slot-{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(fd)
                else:
                    return fd
            await asyncio.sleep(LOOK_AGAIN_S * random.uniform(0.5, 1.5))  # noqa: S311 (no secret)

    def _wait_s(self) -> float:
        """How long until the rate allows one more; reserves that moment."""
        if not self._interval_s:
            return 0.0
        fd = os.open(self._folder / "next", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            now = time.time()
            text = os.pread(fd, 64, 0).decode()
            moment = max(now, float(text)) if text else now
            moment = min(moment, now + 3600)  # a clock that was set back must not stop everything
            os.pwrite(fd, f"{moment + self._interval_s:020.6f}".encode(), 0)
        finally:
            os.close(fd)
        return moment - now

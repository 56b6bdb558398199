"""What processes of this machine share while their sandboxes run: folders, records and boot slots."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
import secrets
import shutil
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LABEL: Final = "rl_agent_boot"
"""Metadata key of a boot's label."""
RETRY_S: Final = 0.05


def state_folder(configured: str | None) -> Path:
    """Return the folder for run folders, and create it: the configured one, or this user's in the temporary folder."""
    path = Path(configured) if configured else Path(tempfile.gettempdir(), f"rl_agent-sandboxes-{os.getuid()}")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to another user")
    return path


def owner_tag() -> str:
    """Return this process's id and start time, which are unique until the machine reboots."""
    return f"{os.getpid()}-{_start_time(os.getpid())}"


def is_dead(name: str) -> bool:
    """Return whether the owner in an `<owner_tag>-<id>` name has exited. Names of another form are never dead."""
    pid, _, rest = name.partition("-")
    started = rest.partition("-")[0]
    return pid.isdigit() and started.isdigit() and _start_time(int(pid)) != started


def remove_dead(folder: Path) -> int:
    """Remove the run folders of dead owners; return their number."""
    count = 0
    for path in folder.iterdir():
        if is_dead(path.name):
            remove_tree(path)
            count += 1
    return count


def remove_tree(path: Path) -> None:
    """Remove a run folder, including the unreadable folder that an overlay leaves in it."""
    if os.geteuid() != 0:
        for folder, names, _ in os.walk(path):
            for name in names:
                with contextlib.suppress(OSError):
                    if not Path(folder, name).is_symlink():
                        Path(folder, name).chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)


def _start_time(pid: int) -> str | None:
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return None


class LiveRecords:
    """Records of running sandboxes, in a folder that all processes of this machine share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of_boot(self) -> str:
        """Create the record of a new boot and return its label."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        label = f"{owner_tag()}-{secrets.token_hex(8)}"
        (self._folder / label).touch(mode=0o600)
        return label

    def orphans(self) -> list[str]:
        """Return the labels whose owners have exited."""
        if not self._folder.is_dir():
            return []
        return sorted(path.name for path in self._folder.iterdir() if is_dead(path.name))

    def forget(self, label: str) -> None:
        """Remove the record of a sandbox that is gone."""
        (self._folder / label).unlink(missing_ok=True)


class BootGate:
    """Limit on boots at a time and per second, over all processes of this machine.

    Slots are locked files: the kernel frees them when the process that holds them exits.
    """

    def __init__(self, folder: Path, *, concurrency: int, per_s: float | None) -> None:
        self._folder = folder
        self._concurrency = concurrency
        self._interval_s = 0.0 if per_s is None else 1.0 / per_s
        self._own = asyncio.Semaphore(concurrency)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a slot and hold it during the context."""
        async with self._own:  # first come, first served within a process; only processes poll for a slot
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
            await asyncio.sleep(RETRY_S * random.uniform(0.5, 1.5))  # noqa: S311 (no secret)

    def _wait_s(self) -> float:
        """Reserve the next moment that the rate allows; return the seconds until then."""
        if not self._interval_s:
            return 0.0
        fd = os.open(self._folder / "next", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            now = time.time()
            text = os.pread(fd, 64, 0).decode()
            moment = max(now, float(text)) if text else now
            moment = min(moment, now + 3600)  # bounded, in case the clock was set back
            os.pwrite(fd, f"{moment + self._interval_s:020.6f}".encode(), 0)
        finally:
            os.close(fd)
        return moment - now

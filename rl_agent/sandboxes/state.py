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
"""Metadata key of the label."""
RETRY_S: Final = 0.05


def state_folder(configured: str | None) -> Path:
    """Where run folders are made: as configured, or a folder of this user's in the system's temporary one."""
    path = Path(configured) if configured else Path(tempfile.gettempdir(), f"rl_agent-sandboxes-{os.getuid()}")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to another user")
    return path


def owner_tag() -> str:
    """This process's number and start time: together unique while the machine runs."""
    return f"{os.getpid()}-{_start_time(os.getpid())}"


def is_dead(name: str) -> bool:
    """Whether the process in an `<owner_tag>-<id>` name is gone. Names of another form are never called dead."""
    pid, _, rest = name.partition("-")
    started = rest.partition("-")[0]
    return pid.isdigit() and started.isdigit() and _start_time(int(pid)) != started


def remove_dead(folder: Path) -> int:
    """Remove the run folders of dead owners; returns how many there were."""
    count = 0
    for path in folder.iterdir():
        if is_dead(path.name):
            remove_tree(path)
            count += 1
    return count


def remove_tree(path: Path) -> None:
    """Remove a run folder, with what an overlay leaves in it that only root can list."""
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
    """The records in one folder, which all processes of this machine share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of_boot(self) -> str:
        """A new label, on record until `forget`."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        label = f"{owner_tag()}-{secrets.token_hex(8)}"
        (self._folder / label).touch(mode=0o600)
        return label

    def orphans(self) -> list[str]:
        """Labels of owners that are gone."""
        if not self._folder.is_dir():
            return []
        return sorted(path.name for path in self._folder.iterdir() if is_dead(path.name))

    def forget(self, label: str) -> None:
        """The sandbox is gone."""
        (self._folder / label).unlink(missing_ok=True)


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
            await asyncio.sleep(RETRY_S * random.uniform(0.5, 1.5))  # noqa: S311 (no secret)

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

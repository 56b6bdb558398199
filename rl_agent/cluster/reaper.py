"""A watchdog process that kills leftover processes of a run, however the run ends.

Ray's processes exit with their driver, except its agents, which can wait forever for a lost head. The reaper records
the run's descendants. If the run is killed, the reaper kills the remaining descendants and prints an error message in
place of the run. If the run ends by itself, the reaper kills only processes that are no longer descendants of the run.

    python -m rl_agent.cluster.reaper <pid of the run> <run folder>
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import psutil

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

INTERVAL_S: Final = 1.0
"""Interval between two scans of the descendants."""
GRACE_S: Final = 2.0
"""Grace period for processes that exit by themselves."""
_POLL_S: Final = 0.05
_STDIN: Final = 0
_DONE: Final = b"."
"""Message of a run that ends normally."""


@asynccontextmanager
async def reaped(folder: Path) -> AsyncIterator[None]:
    """Guarantee that all processes started in this context end, even if this process is killed.

    At the end of the context, processes that are no longer descendants of this one (such as an agent of Ray that lost
    its head) are killed. Other children continue.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "rl_agent.cluster.reaper",
        str(os.getpid()),
        str(folder),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        await process.communicate(_DONE)


def main(pid: int, folder: str) -> None:
    """Wait until process `pid` exits, then end the processes that it left."""
    known: set[psutil.Process] = set()
    with suppress(ProcessLookupError, psutil.NoSuchProcess):
        run, ended = psutil.Process(pid), os.pidfd_open(pid)
        awaited = [_STDIN, ended]
        while ended not in (ready := select.select(awaited, [], [], INTERVAL_S)[0]):
            if _STDIN in ready:
                if os.read(_STDIN, 1):
                    _end(known, run)
                    return
                awaited.remove(_STDIN)  # the run has exited, which `ended` reports next
            known = {process for process in known if process.is_running()} | set(run.children(recursive=True))
    sys.stderr.write(
        f"error: the run's process {pid} exited without a message: it was killed (manually, or out of memory), or Ray's raylet on its "
        f"machine was. Its child processes are being ended. Continue with resume={folder}\n"
    )
    time.sleep(GRACE_S)
    _kill(known)


def _end(known: set[psutil.Process], run: psutil.Process) -> None:
    """End the processes that are no longer descendants of `run`. Most of them are about to exit."""
    deadline = time.monotonic() + GRACE_S
    while lost := {process for process in known if _lives(process)} - set(run.children(recursive=True)):
        if time.monotonic() > deadline:
            _kill(lost)
            return
        time.sleep(_POLL_S)


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def _kill(processes: set[psutil.Process]) -> None:
    for process in processes:
        if process.pid != os.getpid():
            with suppress(psutil.NoSuchProcess):
                process.kill()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

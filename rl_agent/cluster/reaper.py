"""A small process that outlives a killed run just long enough to end what the run has started.

Ray's own processes end with their driver, but for its agents, which can wait for ever for a head that is gone. The reaper
notes the run's descendants as they come; when the run's process is gone, whatever of them is still there is killed.

    python -m rl_agent.cluster.reaper <pid of the run>
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

INTERVAL_S: Final = 1.0
"""Time between two looks at the descendants."""
GRACE_S: Final = 2.0
"""Time for what ends by itself."""


@asynccontextmanager
async def reaped() -> AsyncIterator[None]:
    """Inside, everything that this process starts is ended even if this process is killed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "rl_agent.cluster.reaper",
        str(os.getpid()),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


def main(pid: int) -> None:
    """Wait for the end of process `pid`, then kill what it left."""
    known: set[psutil.Process] = set()
    with suppress(ProcessLookupError, psutil.NoSuchProcess):
        run, ended = psutil.Process(pid), os.pidfd_open(pid)
        while not select.select([ended], [], [], INTERVAL_S)[0]:
            known = {process for process in known if process.is_running()} | set(run.children(recursive=True))
    time.sleep(GRACE_S)
    for process in known:
        if process.pid != os.getpid():
            with suppress(psutil.NoSuchProcess):
                process.kill()


if __name__ == "__main__":
    main(int(sys.argv[1]))

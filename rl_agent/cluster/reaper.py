"""A small process that outlives a killed run just long enough to end what the run has started.

Ray's own processes end with their driver, but for its agents, which can wait for ever for a head that is gone. Everything
that a run starts carries the run's mark in its environment; when the run's process is gone, whatever still carries it is killed.

    python -m rl_agent.cluster.reaper <pid of the run> <mark>
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import time
import uuid
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rl_agent.secrets import set_for_children

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MARK: Final = "RL_AGENT_RUN"
"""The environment variable that holds the mark. Written for children, never read by the framework."""
GRACE_S: Final = 2.0
"""Time for what ends by itself."""
PATIENCE_S: Final = 30.0


@asynccontextmanager
async def reaped() -> AsyncIterator[None]:
    """Inside, everything that this process starts is ended even if this process is killed."""
    mark = uuid.uuid4().hex
    set_for_children(MARK, mark)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "rl_agent.cluster.reaper",
        str(os.getpid()),
        mark,
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


def marked(mark: str) -> list[int]:
    """Processes with the mark in their environment, this one left out."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):  # it has ended, or is another user's
                if wanted in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def main(pid: int, mark: str) -> None:
    """Wait for the end of process `pid`, then kill what it left."""
    with suppress(ProcessLookupError):
        select.select([os.pidfd_open(pid)], [], [])
    time.sleep(GRACE_S)
    deadline = time.monotonic() + PATIENCE_S
    while (left := marked(mark)) and time.monotonic() < deadline:
        for number in left:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        time.sleep(0.2)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

"""Find and end the processes of one Ray cluster on one host, by the cluster's mark in their environment.

`ray stop` would end every cluster on the machine.

    python -m rl_agent.cluster.marked count|end <mark>
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence

VARIABLE: Final = "RL_AGENT_CLUSTER"
GRACE_S: Final = 10.0
"""Grace period in which raylets end their workers."""


def marked(mark: str) -> list[psutil.Process]:
    """Return all live processes with the mark, except this one."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != psutil.Process().pid and process.environ().get(VARIABLE) == mark:
                found.append(process)
    return found


def end(mark: str) -> int:
    """Terminate all processes with the mark, then kill the rest. Return their number."""
    first = marked(mark)
    _signal(first, kill=False)
    deadline = time.monotonic() + GRACE_S
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.2)
    while left:
        _signal(left, kill=True)
        time.sleep(0.2)
        left = marked(mark)
    return len(first)


def _signal(processes: Sequence[psutil.Process], *, kill: bool) -> None:
    for process in processes:
        with suppress(psutil.Error):
            if kill:
                process.kill()
            else:
                process.terminate()


if __name__ == "__main__":
    print(end(sys.argv[2]) if sys.argv[1] == "end" else len(marked(sys.argv[2])))  # noqa: T201 (read over ssh)

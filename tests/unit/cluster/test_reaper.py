"""Whatever a run has started is ended with it, and a run that could not say why it ended has it said."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import psutil
import pytest

RUN = """
    import asyncio, subprocess, sys
    from pathlib import Path
    from rl_agent.cluster import reaper

    ORPHAN = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=-3, stderr=-3).pid, flush=True); input()"

    async def main():
        async with reaper.reaped(Path("outputs/a run")):
            child = subprocess.Popen(["sleep", "600"], stdout=-3, stderr=-3)
            between = subprocess.Popen([sys.executable, "-c", ORPHAN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=-3)
            orphan = between.stdout.readline().decode().strip()
            await asyncio.sleep(2 * reaper.INTERVAL_S)  # it has been seen below this process
            between.communicate(b"end\\n")
            print(child.pid, orphan, flush=True)
            await asyncio.to_thread(sys.stdin.readline)
        print("ended", flush=True)
        sys.stdin.readline()

    asyncio.run(main())
"""


@pytest.fixture
def run() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(RUN)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def started(run: subprocess.Popen[str]) -> tuple[psutil.Process, psutil.Process]:
    assert run.stdout is not None
    child, orphan = (psutil.Process(int(word)) for word in run.stdout.readline().split())
    assert run.pid not in {parent.pid for parent in orphan.parents()}
    return child, orphan


def test_a_run_that_is_killed_leaves_nothing_and_is_spoken_for(run: subprocess.Popen[str]) -> None:
    processes = started(run)
    run.send_signal(signal.SIGKILL)
    _, errors = run.communicate(timeout=60)  # the reaper has the same standard error: this is its end, too
    assert "exited without a message" in errors
    assert "resume=outputs/a run" in errors
    assert psutil.wait_procs(processes, timeout=10)[1] == []


def test_a_run_that_ends_takes_along_what_it_has_lost_and_nothing_else(run: subprocess.Popen[str]) -> None:
    child, orphan = started(run)
    assert run.stdin is not None
    assert run.stdout is not None
    run.stdin.write("leave\n")
    run.stdin.flush()
    assert run.stdout.readline() == "ended\n"
    assert psutil.wait_procs([orphan], timeout=10)[1] == []
    assert child.status() == psutil.STATUS_SLEEPING
    child.kill()
    _, errors = run.communicate("end\n", timeout=60)
    assert (run.returncode, errors) == (0, "")

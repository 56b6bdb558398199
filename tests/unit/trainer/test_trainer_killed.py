"""Killed at any moment, saves included, a trainer has its last complete checkpoint and goes on from it as if nothing had been."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from killed_trainer import NOTES, uninterrupted

from rl_agent.run_folder import RunFolder

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

LIFE_S = 1.5
"""Longest time from loading to the kill: a dozen steps and saves."""


def notes(root: Path) -> list[list[str]]:
    path = root / NOTES
    return [line.split() for line in path.read_text().splitlines()] if path.is_file() else []


def number(root: Path, kind: str) -> int:
    """The last step of which there is such a note; 0 if there is none."""
    return max((int(words[1]) for words in notes(root) if words[0] == kind), default=0)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=[pytest.mark.long, pytest.mark.timeout(1200)])])
def test_kill_9_at_any_moment_never_loses_the_last_complete_checkpoint(
    kills: int, tiny_model: Path, megatron_worker: ProcessPoolExecutor
) -> None:
    root, moments = tiny_model.parent, random.Random(kills)
    parent = subprocess.Popen(
        [sys.executable, "-W", "ignore", str(Path(__file__).with_name("killed_trainer.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        for life in range(kills + 1):
            kept = RunFolder(root).last_checkpoint()
            assert (kept.step if kept else 0) >= number(root, "finished")
            parent.stdin.write(f"{root}\n")
            parent.stdin.flush()
            child = int(parent.stdout.readline())
            try:
                loaded = _wait_for(root, "loaded", life + 1, child)
                assert loaded == (kept.step if kept else 0)
                if life < kills:
                    if life == 0:  # so that there is something to lose, however slow the machine
                        _wait_for(root, "finished", 1, child)
                    time.sleep(moments.uniform(0, LIFE_S))
                else:  # it can still train and save
                    finished = [words for words in notes(root) if words[0] == "finished"]
                    assert _wait_for(root, "finished", len(finished) + 1, child) == loaded + 1
            finally:
                with contextlib.suppress(ProcessLookupError):  # it has said on stderr why it ended
                    os.kill(child, signal.SIGKILL)
                assert parent.stdout.readline() == "ended\n"
        parent.stdin.close()
    losses = [(int(words[1]), float(words[2])) for words in notes(root) if words[0] == "trained"]
    expected = megatron_worker.submit(uninterrupted, root, number(root, "trained")).result(timeout=300)
    for step, loss in losses:  # steps that were done again after a kill included
        assert loss == pytest.approx(expected[step - 1], abs=1e-5), step
    assert number(root, "finished") > 1


def _wait_for(root: Path, kind: str, count: int, child: int) -> int:
    """The step of the note `kind` that is the `count`-th of all lives."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and psutil.pid_exists(child):
        found = [int(words[1]) for words in notes(root) if words[0] == kind]
        if len(found) >= count:
            return found[count - 1]
        time.sleep(0.01)
    raise AssertionError(f"no {kind} within 240 s, or the child has ended: {notes(root)[-5:]}")

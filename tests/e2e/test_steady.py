"""A run does not grow: memory, files, sockets and threads of every process stay what they are, however many steps it takes."""

from __future__ import annotations

import json
import os
import statistics
import threading
from collections import defaultdict
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.e2e.command import SCRIPTED, Command
from tests.local import needs_root

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [needs_root, pytest.mark.e2e, pytest.mark.slow]

INTERVAL_S = 0.05
GROWTH = 1.05
SLACK_BYTES = 3 << 20
"""What an allocator may keep besides: matters only for the small processes."""
SLACK_FILES = 4
"""Open files of a process under the same load: connections that a pool may keep. One file left open in every step is 20 more, or 160."""


@dataclass(slots=True, frozen=True)
class Sample:
    memory: int
    """Resident bytes."""
    files: int
    threads: int
    below: int
    """Processes below this one: its load. A live sandbox of a worker is five of them, and a dozen open files."""


@dataclass(slots=True)
class Watch:
    """Samples every process of a run, by the step that it is in."""

    run: Command
    seen: dict[tuple[int, str], dict[int, list[Sample]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    """Process -> step -> samples."""
    files: dict[int, int] = field(default_factory=dict)
    """Step -> files in the run folder, at the least."""
    over: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        while not self.over.wait(INTERVAL_S):
            step = len(self.run.metrics())
            files = sum(len(names) for _, _, names in os.walk(self.run.output))  # folders may go meanwhile
            self.files[step] = min(files, self.files.get(step, files))
            family = self.run.family()
            tree = parents(family)
            for process in family:
                try:
                    with process.oneshot():
                        name = " ".join(process.cmdline())[:60].split(".")[0]  # Ray adds the method that runs
                        sample = Sample(
                            memory=process.memory_info().rss,
                            files=process.num_fds(),
                            threads=process.num_threads(),
                            below=below(process.pid, tree),
                        )
                except psutil.Error:
                    continue
                self.seen[process.pid, name][step].append(sample)


def parents(processes: list[psutil.Process]) -> dict[int, int]:
    found = {}
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            found[process.pid] = process.ppid()
    return found


def below(pid: int, tree: dict[int, int]) -> int:
    """How many processes `pid` has below it."""
    children = [child for child, parent in tree.items() if parent == pid]
    return len(children) + sum(below(child, tree) for child in children)


@dataclass(slots=True, frozen=True)
class Usage:
    """What is in use for a moment is no growth, what is left behind stays: median memory, fewest threads and files.

    A run is hardly ever idle, so files are told apart by load; what is left behind is there under each.
    """

    memory: float
    threads: int
    files: dict[int, int]
    """Processes below -> the fewest open files with so many."""

    @classmethod
    def of(cls, samples: list[Sample]) -> Usage:
        files: dict[int, int] = {}
        for sample in samples:
            files[sample.below] = min(sample.files, files.get(sample.below, sample.files))
        return cls(
            memory=statistics.median(sample.memory for sample in samples),
            threads=min(sample.threads for sample in samples),
            files=files,
        )


@pytest.mark.parametrize(
    ("steps", "early", "late"),
    [
        pytest.param(40, range(10, 20), range(30, 40), marks=[pytest.mark.long, pytest.mark.timeout(900)]),
        pytest.param(200, range(20, 40), range(180, 200), marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
    ],
)
def test_many_steps_leave_everything_as_small_as_a_few(steps: int, early: range, late: range, tmp_path: Path) -> None:
    run = Command(
        output=tmp_path / "run",
        overrides=(
            *SCRIPTED,
            "algo.max_staleness=1",
            f"job.steps={steps}",
            "job.save_every=5",
            "job.eval_every=10",
            "rollout.tasks_per_step=1",
            "rollout.max_concurrent=2",
            "rollout.save=none",
            "harness.time_budget_s=120",
            f"sandbox.state_dir={tmp_path}/state",
        ),
    )
    run.start()
    watch = Watch(run)
    watcher = threading.Thread(target=watch.watch)
    watcher.start()
    try:
        done = run.finish(timeout=3000)
    finally:
        watch.over.set()
        watcher.join()
    run.assert_nothing_left()
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(run.metrics()) == steps
    lasting = {
        process: samples
        for process, samples in watch.seen.items()
        if any(samples.get(step) for step in early) and any(samples.get(step) for step in late)
    }
    assert len(lasting) >= 5, "the run's own processes, and Ray's"
    report = {}
    for (pid, name), samples in lasting.items():
        before, after = (Usage.of([s for step in window for s in samples.get(step, ())]) for window in (early, late))
        report[f"{pid} {name}"] = {"before": asdict(before), "after": asdict(after)}
        assert after.memory <= before.memory * GROWTH + SLACK_BYTES, json.dumps(report, indent=2)
        assert after.threads <= before.threads + 2, json.dumps(report, indent=2)
        more = [count - before.files[load] for load, count in after.files.items() if load in before.files]
        assert min(more) <= SLACK_FILES, json.dumps(report, indent=2)
    files = [min(watch.files[step] for step in window if step in watch.files) for window in (early, late)]
    assert files[1] <= files[0] + 2, "files in the run folder"

"""Whole runs of the program, for benchmarks: start one as a user does, and read what it has recorded."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from rl_agent.secrets import child_environment

ROOT = Path(__file__).parents[1]


def recorded_steps(folder: Path) -> list[dict[str, float]]:
    """The whole lines of a run's metrics.jsonl so far."""
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.is_file() else []


def run(folder: Path, overrides: list[str]) -> list[float]:
    """One run in `folder`; returns when each of its steps was recorded, in seconds from its start. Exits if the run fails."""
    command = [sys.executable, "-m", "rl_agent", f"hydra.run.dir={folder}", *overrides]
    started, times = time.monotonic(), list[float]()
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=child_environment({"PYTHONPATH": str(ROOT)}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    ) as process:
        while process.poll() is None:
            time.sleep(0.2)
            times += [time.monotonic() - started] * (len(recorded_steps(folder)) - len(times))
    if process.returncode:
        log = folder / "run.log"
        end = log.read_text()[-3000:] if log.is_file() else "there is no log"  # the folder is gone with the benchmark
        raise SystemExit(f"{' '.join(overrides)} ended with exit code {process.returncode}:\n{end}")
    return times


def statuses(steps: list[dict[str, float]]) -> dict[str, int]:
    """How many rollouts of all steps ended how."""
    counts: dict[str, int] = {}
    for step in steps:
        for name, value in step.items():
            if name.startswith("rollout/status/"):
                status = name.removeprefix("rollout/status/")
                counts[status] = counts.get(status, 0) + int(value)
    return dict(sorted(counts.items()))

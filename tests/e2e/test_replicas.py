"""Processes that are killed in the middle of a run: what serves and what samples comes back, what trains ends the run clearly."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rl_agent.rollout.records import load_segments
from tests.e2e.command import Command
from tests.local import needs_root

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_root, pytest.mark.timeout(900)]

SERVER = b"vllm.entrypoints.openai.api_server"


def command(output: Path, *overrides: str) -> Command:
    return Command(output=output, overrides=("tracking=none", "tracking.console=false", "debug=fast", *overrides))


def found(run: Command, is_it: Callable[[list[bytes]], bool]) -> list[int]:
    """Numbers of the run's processes whose arguments are so."""
    pids = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            arguments, environment = (entry / "cmdline").read_bytes().split(b"\0"), (entry / "environ").read_bytes()
        except OSError:
            continue
        if run.mark.encode() in environment and is_it(arguments):
            pids.append(int(entry.name))
    return pids


def is_server(arguments: list[bytes]) -> bool:
    """Not the wrappers around it, whose arguments are the same."""
    return SERVER in arguments and b"python" in arguments[0]


def is_actor(name: str) -> Callable[[list[bytes]], bool]:
    return lambda arguments: arguments[0].startswith(f"ray::{name}".encode())


def kill_in_a_step(run: Command, after_step: int, is_it: Callable[[list[bytes]], bool]) -> None:
    """SIGKILL the first such process, once `after_step` is done and the next one has begun."""
    assert run.process is not None
    deadline = time.monotonic() + 400
    while len(run.metrics()) < after_step and time.monotonic() < deadline and run.process.poll() is None:
        time.sleep(0.05)
    assert run.process.poll() is None, run.finish(timeout=10).stderr[-2000:]
    time.sleep(0.5)
    victim = min(found(run, is_it))
    os.kill(victim, signal.SIGKILL)


def versions(run: Command, step: int) -> set[int]:
    """Of the weights that the trained tokens of a step were sampled with."""
    segments = load_segments(run.output / "rollouts", step)
    return {int(v) for parts in segments.values() for part in parts for v in part.weight_versions[part.loss_mask]}


def assert_whole(run: Command, steps: int) -> None:
    """Every step is there, each with rollouts that have a verdict and were sampled with that step's weights."""
    metrics = run.metrics()
    assert [record["step"] for record in metrics] == list(range(1, steps + 1))
    for record in metrics:
        assert record["tokens/trainable_share"] == 1.0
        assert record["staleness/max"] == 0.0
        assert versions(run, record["step"]) == {record["step"] - 1}
        lines = (run.output / "rollouts" / f"step_{record['step']:05d}.jsonl").read_text().splitlines()
        assert {json.loads(line)["status"] for line in lines} <= {"solved", "failed", "empty_diff"}


def log(run: Command) -> str:
    return (run.output / "run.log").read_text()


@pytest.mark.long
def test_the_only_policy_server_is_killed_in_a_step_and_comes_back_with_that_steps_weights(tmp_path: Path) -> None:
    run = command(tmp_path / "run", "job.steps=3")
    run.start()
    kill_in_a_step(run, 1, is_server)
    done = run.finish(timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    run.assert_nothing_left()
    assert_whole(run, 3)
    assert "policy server 0 is back" in log(run)
    assert "with weights number 1" in log(run)


@pytest.mark.long
def test_one_of_two_servers_that_weights_are_sent_to_is_killed_and_the_other_serves_on(tmp_path: Path) -> None:
    # the other server goes on meanwhile: enough steps for the lost one to be back, over a minute on a busy machine
    run = command(tmp_path / "run", "job.steps=9", "cluster.engine_replicas=2", "weights=gloo", "weights.timeout_s=60")
    run.start()
    kill_in_a_step(run, 1, is_server)
    done = run.finish(timeout=700)
    assert done.returncode == 0, done.stderr[-3000:]
    run.assert_nothing_left()
    assert_whole(run, 9)
    assert "is back" in log(run)


@pytest.mark.long  # in CI: test_killed.py
def test_a_rollout_worker_is_killed_in_a_step_and_what_it_left_is_swept(tmp_path: Path) -> None:
    state = tmp_path / "state"
    run = command(
        tmp_path / "run", "job.steps=3", "engine=demonstrator", "engine.delay_s=0.5", f"sandbox.state_dir={state}"
    )
    run.start()
    kill_in_a_step(run, 1, is_actor("RolloutWorker"))
    done = run.finish(timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    run.assert_nothing_left()
    assert_whole(run, 3)
    assert "rollout worker 0 is down" in log(run)
    assert not state.exists() or not list(state.iterdir())


@pytest.mark.long  # in CI: test_killed.py
def test_a_trainer_rank_is_killed_and_the_run_ends_saying_how_to_go_on(tmp_path: Path) -> None:
    overrides = ("job.steps=4", "engine=demonstrator", "engine.delay_s=0.5")
    run = command(tmp_path / "run", *overrides)
    run.start()
    kill_in_a_step(run, 1, is_actor("TrainerRank"))
    done = run.finish(timeout=120)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "trainer rank 0 was lost" in error
    assert "resume=" in error
    run.assert_nothing_left()
    again = command(run.output, *overrides, f"resume={run.output}")
    done = again.run(timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert_whole(run, 4)

"""Jobs that sample and do not train, with the real CLI, the real sandbox and the real grader; one of them with the real vLLM."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.rollout.records import load_rollouts, recorded_steps
from tests.e2e.command import Command

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

SCRIPTED = ("tracking.console=false", "tracking=none", "engine=demonstrator", "rollout.tasks_per_step=2")


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def rollout_ids(folder: Path) -> list[str]:
    steps = recorded_steps(folder / "rollouts")
    return [one.rollout_id for step in steps for one in load_rollouts(folder / "rollouts", step)]


def test_rollouts_are_sampled_and_saved_and_a_killed_run_does_only_what_is_missing(tmp_path: Path) -> None:
    numbers = ("job=rollout", "job.tasks=4", "algo.group_size=2")
    run = Command(
        output=tmp_path / "run", overrides=(*SCRIPTED, *numbers, "engine.delay_s=0.3", "rollout.max_concurrent=2")
    )
    run.start()
    assert run.process is not None
    deadline = time.monotonic() + 200
    while not list((run.output / "rollouts").glob("step_*.jsonl")) and time.monotonic() < deadline:
        assert run.process.poll() is None
        time.sleep(0.05)
    run.process.send_signal(signal.SIGKILL)
    run.finish(timeout=30)
    run.assert_nothing_left()
    before = {path.name: path.read_bytes() for path in (run.output / "rollouts").glob("step_*")}
    assert 2 <= len(before) < 4

    resumed = Command(output=run.output, overrides=(*SCRIPTED, *numbers, f"resume={run.output}"))
    done = resumed.run(timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert rollout_ids(run.output) == [f"{task:06d}-{member:02d}" for task in range(4) for member in range(2)]
    assert all((run.output / "rollouts" / name).read_bytes() == content for name, content in before.items())
    figures = summary(run.output)
    assert figures["statuses"] == {"solved": 8}
    assert figures["solved_rate"] == 1.0
    assert figures["sampled_tokens"] > 0
    assert [record["step"] for record in run.metrics()] == [1, 2]


def test_the_held_out_tasks_are_evaluated_one_by_one(tmp_path: Path) -> None:
    run = Command(
        output=tmp_path / "run",
        overrides=(
            "tracking.console=false",
            "tracking=wandb_offline",
            "engine=demonstrator",
            "job=evaluate",
            "data.split=held_out",
            "job.tasks=3",
            "job.rollouts=2",
            "job.k=[1,2]",
        ),
    )
    done = run.run(timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in (run.output / "evaluation.jsonl").read_text().splitlines()]
    assert [row["task_id"] for row in rows] == [
        f"toy-{kind}-held_out-0-{i}" for i, kind in enumerate(["sub", "add", "max"])
    ]
    assert all(row["rollouts"] == row["solved"] == 2 and row["pass@2"] == 1.0 for row in rows)
    figures = summary(run.output)
    assert figures["pass@1"] == 1.0
    assert 0.3 < figures["pass@1/low"] < 0.5  # three tasks say little, and the interval says so
    assert "pass@1: 1.000  [0.4" in done.stdout
    assert "toy-add-held_out-0-1" in done.stdout
    tables = [path.name for path in (run.output / "wandb").rglob("*.table.json")]
    assert any("evaluation" in str(path) for path in (run.output / "wandb").rglob("*.table.json")), tables
    assert any(name.startswith("rollouts") for name in tables)


@pytest.mark.long
def test_the_real_policy_is_trained_on_sampled_records_and_evaluated_from_the_trainers_checkpoint(
    tmp_path: Path,
) -> None:
    sampled = Command(
        output=tmp_path / "sampled", overrides=(*SCRIPTED, "job=rollout", "job.tasks=2", "algo.group_size=2")
    )
    done = sampled.run(timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    trained = Command(  # all are solved: only an estimator without a group learns from them
        output=tmp_path / "trained",
        overrides=(
            "tracking=none",
            "job.steps=1",
            "job.eval_every=0",
            f"data.replay={sampled.output}",
            "algo/advantage=reinforce_plus_plus",
        ),
    )
    done = trained.run(timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [record["reward/mean"] for record in trained.metrics()] == [1.0]
    run = Command(
        output=tmp_path / "run",
        overrides=(
            "tracking.console=false",
            "tracking=none",
            "job=evaluate",
            f"job.checkpoint={trained.output}/checkpoints/step_00001",
            "data.split=held_out",
            "job.tasks=2",
            "job.rollouts=2",
            "job.k=[1,2]",
            "rollout.sampling.temperature=0.5",
        ),
    )
    done = run.run(timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    figures = summary(run.output)
    assert figures["rollouts"] == 4
    assert figures["without_reward"] == 0
    assert figures["weight_version"] == 1
    assert figures["temperature"] == 0.5
    rollouts = [
        one for step in recorded_steps(run.output / "rollouts") for one in load_rollouts(run.output / "rollouts", step)
    ]
    assert {int(v) for one in rollouts for part in one.segments for v in part.weight_versions[part.loss_mask]} == {1}

"""A broken task among good ones: training finds it, leaves it out from then on, and says so."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest

from rl_agent.embedded.toy_source import ToyDataConfig
from rl_agent.tasks.task import EvalCmdSpec
from tests.e2e.command import Command

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.tasks.task import Task

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]


def row(name: str, task: Task) -> str:
    assert isinstance(task.grader, EvalCmdSpec)
    metadata = {
        "instance_id": name,
        "image": task.image,
        "workdir": task.workdir,
        "repo_files": dict(task.files),
        "eval_cmd": task.grader.eval_cmd,
        "files": dict(task.grader.files),
        "pre_commands": ["echo no such package; exit 3"] if name == "broken" else [],
    }
    return json.dumps({"prompt": task.problem_statement, "metadata": metadata})


@pytest.mark.long
def test_a_broken_task_goes_into_quarantine_and_its_place_is_taken_by_the_next(tmp_path: Path) -> None:
    tasks = itertools.islice(ToyDataConfig(kinds=["sub", "add", "max", "last"], image="host").build().tasks(0), 4)
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join(map(row, ("one", "broken", "two", "three"), tasks)) + "\n")
    run = Command(
        output=tmp_path / "run",
        overrides=(
            *(
                "engine=demonstrator",
                "debug=fast",
                "job.steps=3",
                "job.save_every=3",
                "tracking=none",
                "tracking.console=false",
            ),
            *("data=jsonl", f"data.path={rows}", "data.shuffle=false"),
        ),
    )
    done = run.run(timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = []
    for step in (1, 2, 3):
        lines = (run.output / "rollouts" / f"step_{step:05d}.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        seen.append(list(dict.fromkeys(record["task_id"] for record in records)))
        for record in records:
            broken = record["task_id"] == "broken"
            assert (record["status"], record["reward"]) == (("setup_error", None) if broken else ("solved", 1.0))
    assert seen == [["one", "broken"], ["two", "three"], ["one", "two"]]
    (entry,) = [json.loads(line) for line in (run.output / "quarantine.jsonl").read_text().splitlines()]
    assert (entry["task_id"], entry["reason"], entry["since"]) == ("broken", "setup_failed", 2)
    assert "no such package" in entry["detail"]
    metrics = run.metrics()
    assert [step["data/quarantined"] for step in metrics] == [1.0, 1.0, 1.0]
    assert [step["reward/mean"] for step in metrics] == [1.0, 1.0, 1.0]
    assert metrics[-1]["data/tasks_always_solved"] == 3.0
    assert "task broken is in quarantine: setup_failed" in (run.output / "run.log").read_text()

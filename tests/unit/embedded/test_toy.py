"""Toy tasks: every bug fails its hidden test, the right fix passes it, and no listed mistake does."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from rl_agent.embedded.toy import ToyTask, held_out_tasks, toy_tasks
from rl_agent.embedded.toy_kinds import KINDS
from rl_agent.embedded.toy_source import ToyDataConfig
from rl_agent.errors import ConfigError

HELD_OUT = Path(__file__).parent.parent.parent / "golden" / "held_out.jsonl"
"""The set that `eval/p_right` is measured on: changing it makes figures incomparable."""
DEFAULT = ["sub", "add", "max", "ge", "lt", "even", "last", "up"]


def passes(task: ToyTask, source: str) -> bool:
    """Run the hidden test against `source` in this process."""
    module: dict[str, object] = {}
    exec(compile(source, task.file, "exec"), module)
    test = task.hidden_test().split("\n", 1)[1]
    try:
        exec(test, {task.function: module[task.function], "print": lambda *_: None})
    except Exception:  # noqa: BLE001 (a wrong fix may fail in any way)
        return False
    return True


def test_the_hidden_test_tells_right_from_wrong_for_every_kind() -> None:
    for task in itertools.islice(toy_tasks(0, "train", list(KINDS)), 300):
        head = task.source.splitlines()[0]
        assert not passes(task, task.source), task
        assert passes(task, f"{head}\n    return {task.right}\n"), task
        for wrong in task.wrong:
            assert not passes(task, f"{head}\n    return {wrong}\n"), (task, wrong)


def test_the_hidden_test_runs_as_a_script(tmp_path: Path) -> None:
    task = next(toy_tasks(1, "train", ["sub"]))
    (tmp_path / "hidden_test.py").write_text(task.hidden_test())
    for source, code in ((task.source, 1), (f"{task.source.splitlines()[0]}\n    return {task.right}\n", 0)):
        (tmp_path / task.file).write_text(source)
        done = subprocess.run([sys.executable, "-B", "hidden_test.py"], cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == code


def test_the_statement_names_no_argument() -> None:
    for task in itertools.islice(toy_tasks(3, "train", list(KINDS)), 100):
        words = task.problem_statement.replace(":", " ").replace(".", " ").split()
        assert not set(task.arguments) & set(words) - {task.function}


def test_the_stream_can_be_entered_anywhere() -> None:
    source = ToyDataConfig(kinds=DEFAULT, image="host").build()
    whole = [task.task_id for task in itertools.islice(source.tasks(5), 20)]
    assert [task.task_id for task in itertools.islice(source.tasks(5, start=8), 12)] == whole[8:]


def test_every_step_of_eight_sees_every_kind_once() -> None:
    kinds = [
        task.metadata["kind"]
        for task in itertools.islice(ToyDataConfig(kinds=DEFAULT, image="host").build().tasks(0), 16)
    ]
    assert sorted(kinds[:8]) == sorted(kinds[8:]) == sorted(DEFAULT)


def test_held_out_surfaces_are_never_trained_on() -> None:
    def surface(task: ToyTask) -> tuple[str, ...]:
        return (task.file, task.function, *task.arguments[: task.kind.arity])

    held_out = held_out_tasks(DEFAULT)
    assert len(held_out) == 64
    assert {task.kind.name for task in held_out} == set(DEFAULT)
    trained = {surface(task) for task in itertools.islice(toy_tasks(0, "train", DEFAULT), 5000)}
    assert not trained & {surface(task) for task in held_out}


def test_the_held_out_set_is_the_committed_one() -> None:
    committed = [json.loads(line) for line in HELD_OUT.read_text().splitlines()]
    made = [
        {
            "task_id": task.task_id,
            "kind": task.kind.name,
            "problem_statement": task.problem_statement,
            "source": task.source,
            "right": task.right,
            "wrong": list(task.wrong),
        }
        for task in held_out_tasks(DEFAULT)
    ]
    assert made == committed


def test_an_unknown_kind_is_named_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"`subb`.*sub"):
        ToyDataConfig(kinds=["subb"], image="host").build()

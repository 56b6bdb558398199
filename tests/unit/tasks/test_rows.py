"""Rows become tasks, in a reproducible order, or an error that names file and row."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest

from rl_agent.errors import ConfigError
from rl_agent.tasks.rows import JsonlTasks

if TYPE_CHECKING:
    from pathlib import Path

ROW = {"prompt": "Fix it.", "metadata": {"image": "host", "workdir": "/w", "eval_cmd": "true", "instance_id": "a"}}


def source(path: Path) -> JsonlTasks:
    return JsonlTasks(path=str(path), prompt_key="prompt", label_key="label", metadata_key="metadata")


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_row_becomes_a_task(tmp_path: Path) -> None:
    row = {**ROW, "label": 3, "metadata": {**ROW["metadata"], "pre_commands": "make", "files": {"t.py": "x"}}}
    task = next(source(write(tmp_path / "rows.jsonl", row)).tasks(0))
    assert (task.task_id, task.problem_statement, task.image, task.workdir) == ("a", "Fix it.", "host", "/w")
    assert (task.pre_commands, task.label, dict(task.grader.files)) == (("make",), "3", {"t.py": "x"})


def test_every_epoch_has_every_row_once_and_the_stream_can_be_entered_anywhere(tmp_path: Path) -> None:
    rows = [{**ROW, "metadata": {**ROW["metadata"], "instance_id": str(i)}} for i in range(7)]
    tasks = source(write(tmp_path / "rows.jsonl", *rows))
    whole = [task.task_id for task in itertools.islice(tasks.tasks(3), 21)]
    for epoch in range(3):
        assert sorted(whole[epoch * 7 : epoch * 7 + 7]) == [str(i) for i in range(7)]
    assert [task.task_id for task in itertools.islice(tasks.tasks(3, start=10), 11)] == whole[10:]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "x"}, r"row 1: `metadata` is missing"),
        ({**ROW, "metadata": {"workdir": "/w", "eval_cmd": "true"}}, r"row 1: `image` is missing"),
        ({**ROW, "metadata": {**ROW["metadata"], "workdir": ""}}, r"row 1: `workdir` is ''"),
        ([1], r"row 1: not a JSON object but list"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        next(source(write(tmp_path / "rows.jsonl", row)).tasks(0))


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        next(source(tmp_path / "none.jsonl").tasks(0))
    with pytest.raises(ConfigError, match="holds no row"):
        next(source(write(tmp_path / "empty.jsonl")).tasks(0))

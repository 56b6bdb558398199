"""Rows of any shape give a task, or an error that names line and field; and a million rows are not loaded whole."""

from __future__ import annotations

import itertools
import json
import random
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.errors import ConfigError
from rl_agent.tasks.formats import RowFormat
from rl_agent.tasks.rows import RowsConfig
from rl_agent.tasks.task import Task

if TYPE_CHECKING:
    from pathlib import Path

NAMES = (
    *(
        "prompt",
        "label",
        "metadata",
        "image",
        "workdir",
        "eval_cmd",
        "files",
        "pre_commands",
        "f2p_script",
        "swepro",
        "f2p",
    ),
    *(
        "instance_id",
        "problem_statement",
        "remote_env_info",
        "image_url",
        "FAIL_TO_PASS",
        "PASS_TO_PASS",
        "fail_to_pass",
        "patch",
    ),
    *(
        "run_script",
        "parser",
        "selected_test_files_to_run",
        "before_repo_set_cmd",
        "expected_output_json",
        "commit_hash",
    ),
    *(
        "docker_image",
        "image_name",
        "install_config",
        "test_patch",
        "repo_files",
        "gold_patch",
        "swebench",
        "dockerhub_tag",
    ),
)
GOOD: dict[str, Any] = {
    "prompt": "Fix it.",
    "metadata": {"image": "i", "workdir": "/w", "eval_cmd": "true", "instance_id": "a", "pre_commands": ["x"]},
    "instance_id": "a__b-1",
    "problem_statement": "Fix it.",
    "FAIL_TO_PASS": ["t.py::a"],
    "fail_to_pass": "['t']",
    "PASS_TO_PASS": "[]",
    "patch": "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-1\n+2\n",
    "image": "i",
    "workdir": "/w",
    "commit_hash": "c",
    "expected_output_json": '{"a": "PASSED"}',
    "f2p_script": "def test_a(): pass\n",
}


def value(rng: random.Random, depth: int = 0) -> Any:
    plain = [
        None,
        "",
        "x",
        "/w",
        "[",
        "['a'",
        "{'a': 1}",
        '["a"]',
        "\0",
        "\ud800",
        "a\nb",
        "(" * 300,
        0,
        -1,
        1.5,
        True,
        [],
        {},
        [1],
        ["a"],
        [[]],
    ]
    if depth < 2 and rng.random() < 0.3:
        return {rng.choice(NAMES): value(rng, depth + 1) for _ in range(rng.randint(0, 4))}
    return rng.choice(plain)


def fuzzed(rng: random.Random) -> bytes:
    row: Any = json.loads(json.dumps(GOOD))
    for _ in range(rng.randint(0, 5)):
        target = row if rng.random() < 0.5 else row.setdefault("metadata", {})
        if not isinstance(target, dict):
            continue
        name = rng.choice(NAMES)
        if rng.random() < 0.3:
            target.pop(name, None)
        else:
            target[name] = value(rng)
    text = json.dumps(row if rng.random() < 0.97 else value(rng)).encode()
    if rng.random() < 0.05:
        place = rng.randrange(len(text))
        text = text[:place] + bytes([rng.randrange(256)]) + text[place + 1 :]
    return text.replace(b"\n", b" ").replace(b"\r", b" ")


def check(folder: Path, count: int, seed: int) -> None:
    rng = random.Random(seed)
    path = folder / "rows.jsonl"
    lines = [line for line in (fuzzed(rng) for _ in range(count)) if line.strip()]
    path.write_bytes(b"\n".join(lines) + b"\n")
    for format_ in RowFormat:
        source = RowsConfig(path=str(path), format=format_).build()
        from rl_agent.tasks.store import open_rows

        store, good = open_rows(path), 0
        for number in range(len(store)):
            try:
                task = source._task(store, number)
            except ConfigError as error:
                message = str(error)
                assert f"line {number + 1}: " in message
                assert "`" in message or "JSON object" in message or "one grader" in message, message
            else:
                assert isinstance(task, Task)
                assert task.image
                assert task.workdir.startswith("/")
                assert task.problem_statement
                good += 1
        assert 0 < good < len(store)


def test_a_fuzzed_row_is_a_task_or_an_error_that_names_line_and_field(tmp_path: Path) -> None:
    check(tmp_path, 700, seed=1)


@pytest.mark.long
def test_ten_thousand_fuzzed_rows_are_tasks_or_errors(tmp_path: Path) -> None:
    check(tmp_path, 10_000, seed=2)


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_many_rows_are_streamed_and_not_held(tmp_path: Path, count: int) -> None:
    path = tmp_path / "rows.jsonl"
    meta = {"image": "host", "workdir": "/w", "eval_cmd": "true"}
    with path.open("w") as file:
        for number in range(count):
            file.write(json.dumps({"prompt": "p" * 200, "metadata": {**meta, "instance_id": str(number)}}) + "\n")
    tracemalloc.start()
    source = RowsConfig(path=str(path)).build()
    first = [task.task_id for task in itertools.islice(source.tasks(5), 20)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(set(first)) == 20
    assert peak < 40 * count + 1_000_000, "an index of some bytes a row, and not the rows"
    assert [task.task_id for task in itertools.islice(source.tasks(5, start=count + 3), 2)] != first[3:5]

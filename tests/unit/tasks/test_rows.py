"""Rows become tasks, in a reproducible order, or an error that names file, line and field."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.errors import ConfigError
from rl_agent.tasks.rows import RowsConfig
from rl_agent.tasks.task import EvalCmdSpec, F2pSpec, SweBenchSpec, SweProSpec

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.tasks.rows import RowTasks

META = {"image": "host", "workdir": "/w", "eval_cmd": "true", "instance_id": "a"}
ROW = {"prompt": "Fix it.", "metadata": META}


def source(path: Path, **changes: Any) -> RowTasks:
    tasks: RowTasks = RowsConfig(path=str(path), **changes).build()
    return tasks


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def without(*names: str) -> dict[str, str]:
    return {key: value for key, value in META.items() if key not in names}


def test_a_row_becomes_a_task(tmp_path: Path) -> None:
    more = {"pre_commands": "make", "files": {"t.py": "x"}, "test_files": ["tests/a.py"], "gold_patch": "diff"}
    row = {**ROW, "label": 3, "metadata": {**META, **more}}
    task = next(source(write(tmp_path / "rows.jsonl", row)).tasks(0))
    assert (task.task_id, task.problem_statement, task.image, task.workdir) == ("a", "Fix it.", "host", "/w")
    assert (task.pre_commands, task.label, task.gold_patch) == (("make",), "3", "diff")
    assert task.grader == EvalCmdSpec(eval_cmd="true", files={"t.py": "x"}, test_files=("tests/a.py",))


def test_key_names_are_configurable_and_the_statement_goes_before_the_prompt(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", {"q": "prompt", "m": {**META, "problem_statement": "statement"}, "a": "l"})
    task = next(source(path, prompt_key="q", metadata_key="m", label_key="a").tasks(0))
    assert (task.problem_statement, task.label) == ("statement", "l")


def test_a_scaleswe_row_takes_from_remote_env_info_what_the_metadata_lacks(tmp_path: Path) -> None:
    remote = {
        "image_url": "img",
        "workdir": "/remote",
        "pre_commands": r"one\ntwo",
        "instance_id": "remote-1",
        "f2p_script": "def test_a(): pass\n",
        "FAIL_TO_PASS": "['test_fail_to_pass.py::test_a']",
    }
    path = write(tmp_path / "r.jsonl", {"prompt": "p", "metadata": {"remote_env_info": remote, "workdir": "/mine"}})
    task = next(source(path, row_defaults={"image": "default", "workdir": "/default"}).tasks(0))
    assert (task.image, task.workdir, task.task_id, task.pre_commands) == ("img", "/mine", "remote-1", ("one\ntwo",))
    assert isinstance(task.grader, F2pSpec)
    assert task.grader.fail_to_pass == ("test_fail_to_pass.py::test_a",)


@pytest.mark.parametrize("as_path", [False, True])
def test_a_swepro_grader_has_its_texts_inline_or_as_files(tmp_path: Path, as_path: bool) -> None:
    (tmp_path / "parser.py").write_text("import json\n")
    grader = {
        "run_script": "echo 1\necho 2\n",
        "parser": "parser.py" if as_path else "import json\nimport sys\n",
        "selected_test_files_to_run": "['a', 'b']",
        "fail_to_pass": '["t"]',
        "pass_to_pass": [],
        "before_repo_set_cmd": "git reset\ngit checkout abc -- t",
    }
    path = write(tmp_path / "r.jsonl", {"prompt": "p", "metadata": {**without("eval_cmd"), "swepro": grader}})
    spec = next(source(path).tasks(0)).grader
    assert isinstance(spec, SweProSpec)
    assert spec.parser.startswith("import json\n")
    assert (spec.selected_test_files, spec.fail_to_pass) == (("a", "b"), ("t",))
    assert len(spec.parser_sha256) == 64


def test_every_epoch_has_every_row_once_and_the_stream_can_be_entered_anywhere(tmp_path: Path) -> None:
    rows: list[Any] = [{**ROW, "metadata": {**META, "instance_id": str(i)}} for i in range(7)]
    rows.insert(3, {"prompt": "bad"})
    tasks = source(write(tmp_path / "rows.jsonl", *rows), on_bad_row="skip")
    whole = [task.task_id for task in itertools.islice(tasks.tasks(3), 21)]
    for epoch in range(3):
        assert sorted(whole[epoch * 7 : epoch * 7 + 7]) == [str(i) for i in range(7)]
    assert len({tuple(whole[epoch * 7 : epoch * 7 + 7]) for epoch in range(3)}) == 3
    assert [task.task_id for task in itertools.islice(tasks.tasks(3, start=10), 11)] == whole[10:]
    assert [task.task_id for task in tasks.once()] == [str(i) for i in range(7)]


def test_without_shuffling_rows_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    rows = [{**ROW, "metadata": {**META, "instance_id": str(i)}} for i in range(4)]
    tasks = source(write(tmp_path / "rows.jsonl", *rows), shuffle=False)
    assert [task.task_id for task in itertools.islice(tasks.tasks(1), 6)] == list("012301")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "x"}, r"line 1: `image` is missing"),
        ({"prompt": "x", "metadata": 3}, r"line 1: `metadata`: expected an object, got 3"),
        ({**ROW, "metadata": without("image")}, r"line 1: `image` is missing"),
        ({**ROW, "metadata": {**META, "workdir": ""}}, r"line 1: `workdir` is missing"),
        ({**ROW, "metadata": {**META, "workdir": "here"}}, r"`workdir`: expected an absolute path below /, got 'here'"),
        ({"metadata": META}, r"line 1: `problem_statement` or `prompt` is missing"),
        ({**ROW, "metadata": without("eval_cmd")}, r"one grader of .* has none"),
        ({**ROW, "metadata": {**without("eval_cmd"), "test_patch": "x"}}, r"looks like a row of SWE-bench"),
        ({**ROW, "metadata": {**META, "f2p_script": "x"}}, r"has 2 \(eval_cmd, f2p_script\)"),
        ({**ROW, "metadata": {**META, "files": {"../x": "y"}}}, r"`files`: path outside the repository: '../x'"),
        ({**ROW, "metadata": {**META, "files": {"x": 1}}}, r"`files`: expected a string for 'x', got 1"),
        ({**ROW, "metadata": {**META, "pre_commands": [1]}}, r"`pre_commands`: expected a list of strings, got \[1\]"),
        ({**ROW, "metadata": {**META, "image": "a\0b"}}, r"`image`: contains a NUL"),
        ({**ROW, "metadata": {**META, "files": "[" * 100_000}}, r"`files`: neither JSON nor a Python literal: '\[\["),
        ({**ROW, "metadata": {**META, "files": "[" * 600 + "]" * 600}}, r"`files`: expected an object, got "),
        ([1], r"line 1: expected a JSON object, got list"),
    ],
)
def test_a_bad_row_is_named_with_line_and_field(tmp_path: Path, row: object, message: str) -> None:
    path = write(tmp_path / "rows.jsonl", row)
    with pytest.raises(ConfigError, match=message) as caught:
        next(source(path).tasks(0))
    assert str(path) in str(caught.value)


def test_all_bad_rows_are_listed_and_lines_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n" + json.dumps(ROW) + "\n\n{broken\n" + json.dumps([2]) + "\n")
    with pytest.raises(ConfigError, match=r"(?s)line 4: not a JSON object.*line 5: expected a JSON object, got list"):
        next(source(path).tasks(0))
    assert [task.task_id for task in source(path, on_bad_row="skip").once()] == ["a"]


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        next(source(tmp_path / "none.jsonl").tasks(0))
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(ConfigError, match="no rows found"):
        next(source(tmp_path / "empty.jsonl").tasks(0))
    with pytest.raises(ConfigError, match="no valid row is left"):
        next(source(write(tmp_path / "bad.jsonl", {}), on_bad_row="skip").tasks(0))


def test_the_quarantine_is_left_out(tmp_path: Path) -> None:
    rows = [{**ROW, "metadata": {**META, "instance_id": name}} for name in "abc"]
    quarantine = write(tmp_path / "quarantine.jsonl", {"task_id": "b", "reason": "x"})
    tasks = source(write(tmp_path / "rows.jsonl", *rows), quarantine=str(quarantine))
    assert [task.task_id for task in tasks.once()] == ["a", "c"]
    assert {task.task_id for task in itertools.islice(tasks.tasks(0), 4)} == {"a", "c"}
    with pytest.raises(ConfigError, match=r"data\.quarantine: "):
        next(source(tmp_path / "rows.jsonl", quarantine=str(tmp_path / "rows.jsonl")).tasks(0))


def test_parquet_rows_are_those_of_json_lines(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"prompt": f"p{n}", "metadata": json.dumps({**META, "instance_id": str(n)})} for n in range(23)]
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=5)
    tasks = source(path)
    whole = [task.task_id for task in itertools.islice(tasks.tasks(1), 46)]
    assert sorted(whole[:23]) == sorted(whole[23:]) == sorted(str(n) for n in range(23))
    assert [task.task_id for task in itertools.islice(tasks.tasks(1, start=30), 16)] == whole[30:]
    structure = pyarrow.struct([(name, pyarrow.string()) for name in ("image", "workdir", "eval_cmd", "f2p_script")])
    kinds = pyarrow.struct([*structure, ("f2p", pyarrow.struct([("script", pyarrow.string())]))])
    kinds = pyarrow.struct([*kinds, ("files", pyarrow.map_(pyarrow.string(), pyarrow.string()))])
    typed = [{**without("instance_id"), "files": [("a.py", "1")], "f2p": {}}]
    table = {"prompt": ["p"], "metadata": pyarrow.array(typed, type=kinds)}
    parquet.write_table(pyarrow.table(table), tmp_path / "typed.parquet")
    assert next(source(tmp_path / "typed.parquet").once()).grader == EvalCmdSpec(eval_cmd="true", files={"a.py": "1"})
    (tmp_path / "no.parquet").write_text("no")
    with pytest.raises(ConfigError, match="not a Parquet file"):
        next(source(tmp_path / "no.parquet").tasks(0))


PUBLISHED = {
    "instance_id": "org__repo-1",
    "problem_statement": "Fix.",
    "FAIL_TO_PASS": '["t.py::a"]',
    "patch": "diff\n",
}


def read(folder: Path, format_: str, row: dict[str, Any], **defaults: str) -> Any:
    return next(source(write(folder / "r.jsonl", {**PUBLISHED, **row}), format=format_, row_defaults=defaults).tasks(0))


def test_published_rows_become_tasks(tmp_path: Path) -> None:
    bench = read(tmp_path, "swebench", {"test_patch": "x"}, workdir="/testbed")
    assert bench.image == "swebench/sweb.eval.x86_64.org_1776_repo-1:latest"
    assert isinstance(bench.grader, SweBenchSpec)
    assert bench.grader.instance["FAIL_TO_PASS"] == ["t.py::a"]
    lower = {"FAIL_TO_PASS": None, "fail_to_pass": "['t.py::b']", "pass_to_pass": "[]", "test_patch": "x"}
    bench = read(tmp_path, "swebench", lower, workdir="/testbed")
    assert (bench.grader.instance["FAIL_TO_PASS"], bench.grader.instance["PASS_TO_PASS"]) == (["t.py::b"], [])
    row: dict[str, Any] = {
        "image_url": "i",
        "workdir": "/w",
        "f2p_patch": "d",
        "f2p_script": "s",
        "pre_commands": ["a"],
    }
    scale = read(tmp_path, "scale_swe", row)
    assert (scale.image, scale.pre_commands, scale.grader.test_patch, scale.grader.script) == ("i", ("a",), "d", "s")
    row = {"docker_image": "i", "test_patch": "d", "install_config": {"test_cmd": "pytest -x"}}
    rebench = read(tmp_path, "swe_rebench", row, workdir="/r")
    assert (rebench.grader.test_patch, rebench.grader.fail_to_pass) == ("d", ("t.py::a",))
    row = {"docker_image": "i", "commit_hash": "c", "expected_output_json": '{"T.a - x": "PASSED", "T.b": "FAILED"}'}
    gym = read(tmp_path, "r2e_gym", row, workdir="/r")
    assert (gym.task_id, gym.grader.fail_to_pass) == ("c", ("T.a",))
    assert gym.grader.expected == {"T.a": "passed", "T.b": "failed"}
    assert "r2e_tests" in gym.hidden_paths
    row = {"dockerhub_tag": "t", "base_commit": "abc", "before_repo_set_cmd": "one\ntwo\ngit checkout f -- t"}
    pro = read(tmp_path, "swebench_pro", row, workdir="/app")
    assert pro.image == "jefzda/sweap-images:t"
    assert pro.pre_commands == ("git reset -q --hard abc", "one", "two")


def test_a_published_row_that_names_no_test_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", {**PUBLISHED, "image": "i", "workdir": "/w", "FAIL_TO_PASS": "[]"})
    for format_ in ("swebench", "swe_smith", "swe_rebench", "scale_swe", "swebench_pro"):
        with pytest.raises(ConfigError, match=r"(?i)line 1: .*fail_to_pass"):
            next(source(path, format=format_).tasks(0))

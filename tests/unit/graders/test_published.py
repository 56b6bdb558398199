"""Real rows and logs, as published: SWE-bench Pro's own parsers over logs made of its own test lists, and SWE-smith's logs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.errors import ConfigError, GraderError
from rl_agent.graders.names import Names, is_phantom, outcome_of, plain, worst_by_name
from rl_agent.graders.parse import ParserError, parse_log, require_pinned
from rl_agent.graders.sandboxed import TestRun
from rl_agent.graders.swepro import SweProConfig, SweProJudge
from rl_agent.tasks.rows import RowsConfig
from rl_agent.tasks.task import SweProSpec
from tests.local import needs_root
from tests.pytest_log import statuses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.graders.base import Verdict
    from rl_agent.tasks.rows import RowTasks

DATA = Path(__file__).parents[2] / "data"
SHARED = Path(__file__).parents[4] / "shared" / "data"
PRO = sorted(path.name for path in (DATA / "swebench_pro").iterdir() if path.is_dir())
MISSING = {"image": "host", "workdir": "/app", "problem_statement": "Fix it."}


def judge_log(spec: SweProSpec, rows: Sequence[tuple[str, str]]) -> Verdict:
    verdict: Verdict = SweProJudge().verdict(spec, TestRun(outcomes=worst_by_name(rows)), SweProConfig())
    return verdict


def spec(name: str) -> SweProSpec:
    folder = DATA / "swebench_pro" / name
    row = json.loads((folder / "row.json").read_text())
    return SweProSpec(
        run_script=(folder / "run_script.sh").read_text(),
        parser=(folder / "parser.txt").read_text(),
        selected_test_files=tuple(row["selected_test_files_to_run"]),
        fail_to_pass=tuple(row["fail_to_pass"]),
        pass_to_pass=tuple(row["pass_to_pass"]),
    )


def written_log(name: str, outcomes: dict[str, bool]) -> str:
    """What the test tool of each repository prints."""
    split = [(*test.partition(" | ")[::2], passed) for test, passed in outcomes.items()]
    if name == "NodeBB":
        rows = [({"file": f"/app/{file}", "fullTitle": title}, passed) for file, title, passed in split]
        kinds = {
            "passes": [row for row, passed in rows if passed],
            "failures": [row for row, passed in rows if not passed],
        }
        return "noise\n" + json.dumps({"stats": {}, **kinds}, indent=2) + "\n"
    if name in ("element-web", "webclients"):
        cross = "\u00d7" if name == "element-web" else "✗"
        return "".join(
            f"{'PASS' if passed else 'FAIL'} {file}\n  {'✓' if passed else cross} {title} (5 ms)\n"
            for file, title, passed in split
        )
    if name == "vuls":
        return "".join(f"--- {'PASS' if passed else 'FAIL'}: {test} (0.00s)\n" for test, passed in outcomes.items())
    if name == "openlibrary":
        return "".join(f"{test} {'PASSED' if passed else 'FAILED'} [ 10%]\n" for test, passed in outcomes.items())
    assert name == "tutanota"
    return "All 3000 assertions passed\n" if all(outcomes.values()) else "2 error(s) of 3000\n"


@needs_root
@pytest.mark.parametrize("name", PRO)
async def test_swebench_pro_instances_grade_from_logs_of_their_own_test_lists(name: str) -> None:
    instance = spec(name)
    names = (*instance.fail_to_pass, *instance.pass_to_pass)
    for outcomes, solved in (
        (dict.fromkeys(names, True), True),
        ({**dict.fromkeys(names, True), names[-1]: False}, False),
    ):
        log = written_log(name, outcomes).encode()
        parsed = await parse_log(instance.parser, log, b"", timeout_s=120)
        assert (judge_log(instance, parsed).status == "solved") is solved, parsed
    assert judge_log(instance, []).tests_failed == len(names), "absent is failed"


def test_there_are_six_instances_and_their_tests_are_protected() -> None:
    assert len(PRO) == 6
    assert "test/activitypub.js" in SweProJudge().test_files(spec("NodeBB"))
    assert "openlibrary/tests/solr/updater/test_author.py" in SweProJudge().test_files(spec("openlibrary"))


def verdict(log: str, fail_to_pass: list[str], pass_to_pass: list[str]) -> Any:
    names = Names(fail_to_pass=tuple(fail_to_pass), pass_to_pass=tuple(pass_to_pass))
    return names.verdict(worst_by_name(statuses(log).items()), log="", skipped_pass_to_pass=False)


@pytest.mark.parametrize("instance", ["pandas-dev__pandas.95280573.pr_53652", "pydantic__pydantic.acb0f10f.pr_8316"])
def test_swesmith_logs_give_the_verdicts_of_their_reports(instance: str) -> None:
    folder = DATA / "swesmith" / instance
    report = json.loads((folder / "report.json").read_text())
    tests = report["tests_status"]
    lists = [[*tests[kind]["success"], *tests[kind]["failure"]] for kind in ("FAIL_TO_PASS", "PASS_TO_PASS")]
    found = verdict((folder / "test_output.txt").read_text(), *lists)
    assert (found.status == "solved") is report["resolved"]
    assert found.tests_passed == sum(len(tests[kind]["success"]) for kind in ("FAIL_TO_PASS", "PASS_TO_PASS"))


def test_the_validation_logs_of_swesmith_fail_with_the_bug_and_pass_before_it() -> None:
    folder = DATA / "swesmith" / "run_validation"
    lists = json.loads((folder / "report.json").read_text())
    with_bug = verdict((folder / "test_output.txt").read_text(), lists["FAIL_TO_PASS"], lists["PASS_TO_PASS"])
    before = verdict((folder / "test_output_pre_gold.txt").read_text(), lists["FAIL_TO_PASS"], lists["PASS_TO_PASS"])
    assert (with_bug.status, before.status) == ("failed", "solved")
    assert set(with_bug.metadata["tests_missed"]) == set(lists["FAIL_TO_PASS"])


def rows(path: Path, format_: str, **defaults: str) -> RowTasks:
    source: RowTasks = RowsConfig(path=str(path), format=format_, row_defaults=defaults).build()
    return source


def test_a_swesmith_row_loads_once_it_has_a_workdir_and_its_gold_patch_undoes_the_bug() -> None:
    path = DATA / "swesmith" / "row.json"
    with pytest.raises(ConfigError, match=r"row.json, row 1: `workdir` is missing"):
        next(rows(path, "swe_smith").once())
    task = next(rows(path, "swe_smith", workdir="/testbed").once())
    assert task.image == "jyangballin/swesmith.x86_64.pandas-dev_1776_pandas.95280573"
    assert '+        if lib.is_np_dtype(keyarr.dtype, "mM") or isinstance(\n' in (task.gold_patch or "")


def test_a_swebench_row_loads_once_it_has_a_workdir() -> None:
    path = DATA / "swebench" / "row.json"
    with pytest.raises(ConfigError, match=r"row.json, row 1: `workdir` is missing"):
        next(rows(path, "swebench").once())
    task = next(rows(path, "swebench", workdir="/testbed").once())
    assert task.image == "swebench/sweb.eval.x86_64.pallets_1776_flask-5014:latest"
    assert "+        if not name:\n" in (task.gold_patch or "")


@pytest.mark.parametrize("path", sorted((DATA / "swebench_pro").glob("*/row.json")), ids=PRO)
def test_swebench_pro_rows_load_once_defaults_supply_what_they_lack(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"`problem_statement` is missing"):
        next(rows(path, "swebench_pro").once())
    with pytest.raises(ConfigError, match=r"`image` is missing"):
        next(rows(path, "swebench_pro", problem_statement="x").once())
    task = next(rows(path, "swebench_pro", **MISSING).once())
    assert isinstance(task.grader, SweProSpec)
    assert task.grader.fail_to_pass


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not here")
def test_all_150_shared_rows_load_once_defaults_supply_what_they_lack() -> None:
    path = SHARED / "swebench_pro" / "instance_info_150.jsonl"
    assert len(list(rows(path, "swebench_pro", **MISSING).once())) == 150
    with pytest.raises(ConfigError, match=r"(?s)line 1: `problem_statement` is missing.*130 more bad rows"):
        next(rows(path, "swebench_pro").once())


R2E_LOG = """\
=== short test summary info ===
\x1b[32mPASSED\x1b[0m r2e_tests/test_1.py::\x1b[1mT::test_a\x1b[0m
SKIPPED [1] r2e_tests/test_1.py:3: no display
FAILED r2e_tests/test_1.py::T::test_b - assert 1 == 2
ERROR r2e_tests/test_2.py - ImportError: PASSED
"""


@needs_root
@pytest.mark.parametrize(
    ("expected", "status"),
    [
        ({"T.test_a": "PASSED", "T.test_b - assert 1 == 2": "FAILED"}, "solved"),
        ({"\x1b[1mT.test_a": "PASSED", "T.test_b": "FAILED", "": "ERROR"}, "solved"),
        ({"T.test_a": "PASSED"}, "failed"),
        ({"T.test_a": "PASSED", "T.test_b": "PASSED"}, "failed"),
        ({"T.test_a": "PASSED", "T.test_b": "FAILED", "T.test_c": "FAILED"}, "failed"),
    ],
)
async def test_r2e_gyms_map_must_be_seen_as_a_whole(tmp_path: Path, expected: dict[str, str], status: str) -> None:
    row = {
        "problem_statement": "p",
        "docker_image": "i",
        "commit_hash": "c",
        "expected_output_json": json.dumps(expected),
    }
    (tmp_path / "r.jsonl").write_text(json.dumps(row) + "\n")
    spec = next(rows(tmp_path / "r.jsonl", "r2e_gym", workdir="/testbed").once()).grader
    assert isinstance(spec, SweProSpec)
    parsed = await parse_log(spec.parser, R2E_LOG.encode(), b"", timeout_s=120)
    assert judge_log(spec, parsed).status == status, parsed


@needs_root
async def test_a_parser_runs_alone_and_its_failures_are_errors() -> None:
    spy = (
        "import json, os, socket, sys\nfound = [f'{os.getuid()}', str(os.path.exists('/etc/passwd')), str(os.path.exists('/work'))]\n"
        "try:\n    socket.create_connection(('127.0.0.1', 22), 1)\nexcept OSError as e: found.append(type(e).__name__)\n"
        "json.dump({'tests': [{'name': n, 'status': 'PASSED'} for n in found]}, open(sys.argv[3], 'w'))\n"
    )
    seen = {name for name, _ in await parse_log(spy, b"", b"", timeout_s=120)}
    assert seen <= {"65534", "False", "ConnectionRefusedError", "OSError"}
    for parser in ("raise SystemExit(3)", "print(1)", "open(__import__('sys').argv[3], 'w').write('no json')"):
        with pytest.raises(ParserError, match="the log parser"):
            await parse_log(parser, b"", b"", timeout_s=120)


def test_a_parser_that_is_not_the_pinned_one_is_refused() -> None:
    with pytest.raises(GraderError, match="pins"):
        require_pinned("x", "0" * 64, "t")


def test_names_are_compared_without_colours_and_durations_and_else_as_they_are() -> None:
    assert plain("\x1b[32ma b [c]\x1b[0m (12 ms)") == "a b [c]"
    assert plain("t[5s]") == "t[5s]"
    assert plain("a  b   ( 1.5 s )  ") == "a  b"
    seen = {"t[a b]": "passed", "t[a c]": "failed", "u[x]": "skipped", "v[1 2]": "passed", "v[1 3]": "passed"}
    found = [outcome_of(name, seen) for name in ("t[a", "u[x]", "v[1", "w", "t")]
    assert found == ["failed", "skipped", "passed", "absent", "failed"]


def test_of_two_names_that_differ_in_a_duration_the_failure_counts() -> None:
    for rows in ([("a (1 ms)", "failed"), ("a (2 ms)", "passed")], [("a (2 ms)", "passed"), ("a (1 ms)", "failed")]):
        assert worst_by_name(rows) == {"a": "failed"}


@needs_root
async def test_a_parser_gets_valid_text() -> None:
    strict = "import sys\nopen(sys.argv[1]).read()\nopen(sys.argv[3], 'w').write('{\"tests\": []}')\n"
    assert await parse_log(strict, b"caf\xe9 \xff\xfe", b"\x80", timeout_s=120) == []


def test_a_name_without_a_word_is_a_phantom() -> None:
    assert all(map(is_phantom, ("[100%]", "", "....", "[ 10%]")))
    assert not any(map(is_phantom, ("t", "test/a.js | b", "1 + 1 is 2")))


def test_a_name_made_to_be_slow_is_compared_in_a_moment() -> None:
    started = time.process_time()
    for text in (" " * 200_000 + "x", " (" * 100_000, "(" + "1" * 200_000, "\x1b[" * 100_000):
        plain(text)
    assert time.process_time() - started < 0.5


def test_a_module_whose_doctests_must_keep_passing_belongs_to_the_solution() -> None:
    kept = ("a.py::a", "b/c.py::b.c.f", "t.py::t.f", "u.py", "v.py::test_v[1.py::x]", "docs/w.txt::w.txt", "x.js | y")
    names = Names(fail_to_pass=("t.py::test_t", "d.py::d.f"), pass_to_pass=kept)
    assert names.files == ["t.py", "d.py", "u.py", "v.py", "docs/w.txt", "x.js | y"]

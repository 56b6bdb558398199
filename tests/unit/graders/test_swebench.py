"""What the swebench package's parser finds is judged by our rules. The package itself is tried where it is installed."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.errors import ConfigError, SetupError
from rl_agent.graders.auto import AutoConfig
from rl_agent.graders.names import Names, worst_by_name
from rl_agent.graders.parse import ParserError
from rl_agent.graders.swebench import SweBenchJudge, package_verdict
from rl_agent.graders.swebench_log import REPORT, STATUSES, read_log, report, statuses
from rl_agent.graders.swebench_package import Package, last_block, package_of, without_tests
from rl_agent.tasks.task import SweBenchSpec
from tests.local import calc_task

if TYPE_CHECKING:
    from rl_agent.graders.auto import Auto
    from rl_agent.graders.base import Verdict

PATCH = "diff --git a/tests/t.py b/tests/t.py\n--- a/tests/t.py\n+++ b/tests/t.py\n@@ -1 +1 @@\n-1\n+2\n"
DATA = Path(__file__).parents[2] / "data" / "swebench"
INSTALLED = importlib.util.find_spec("swebench") is not None
needs_package = pytest.mark.skipif(not INSTALLED, reason="the extra `swebench` is not installed (CI has it not)")
EMPTY = "tests/test_blueprints.py::test_empty_name_not_allowed"


def row(**changes: Any) -> dict[str, Any]:
    return {**json.loads((DATA / "row.json").read_text()), **changes}


def package(fail_to_pass: tuple[str, ...] = ("a",), pass_to_pass: tuple[str, ...] = ("b",)) -> Package:
    values: dict[str, Any] = {
        "test_spec": None,
        "grading": None,
        "script": "",
        "repo": "r",
        "eval_type": "pass_and_fail",
    }
    return Package(fail_to_pass=fail_to_pass, pass_to_pass=pass_to_pass, **values)


def judge_statuses(package: Package, statuses: dict[str, str], *, skipped_pass_to_pass: bool = False) -> Verdict:
    names = Names(fail_to_pass=package.fail_to_pass, pass_to_pass=package.pass_to_pass)
    return names.verdict(worst_by_name(statuses.items()), log="", skipped_pass_to_pass=skipped_pass_to_pass)


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        ({"a": "passed", "b": "passed", "c": "failed"}, "solved"),
        ({"a": "skipped", "b": "passed"}, "failed"),
        ({"a": "xfailed", "b": "passed"}, "failed"),
        ({"a": "passed"}, "failed"),
        ({"a": "passed", "b": "failed"}, "failed"),
        ({}, "failed"),
    ],
)
def test_every_named_test_must_be_seen_and_pass(seen: dict[str, str], status: str) -> None:
    assert judge_statuses(package(), seen).status == status


def test_a_skipped_pass_to_pass_test_may_be_allowed() -> None:
    seen = {"a": "passed", "b": "skipped"}
    assert judge_statuses(package(), seen).status == "failed"
    assert judge_statuses(package(), seen, skipped_pass_to_pass=True).status == "solved"


def test_only_the_last_marked_block_of_a_log_counts() -> None:
    forged = b">>>>> Start Test Output\nPASSED a\n>>>>> End Test Output\n"
    real = b"+ : '>>>>> Start Test Output'\nFAILED a\n+ : '>>>>> End Test Output'\nmore\n"
    text = last_block(forged + real)
    assert text is not None
    assert (b"FAILED a" in text, b"PASSED a" in text) == (True, False)
    assert last_block(b"PASSED a\n>>>>> Start Test Output\n") is None
    assert last_block(b"PASSED a\n>>>>> End Test Output\n") is None


def test_the_script_that_runs_the_tests_does_not_hold_them() -> None:
    checkout = "git checkout 7ee9ceb71e868944a46e1ff00b506772a53a4f1d tests/t.py\n"
    brings = f"{checkout}git apply -v - <<'EOF_1'\n{PATCH}EOF_1\n"
    rest = "pip install -e .\n: '>>>>> Start Test Output'\npytest tests/t.py\n: '>>>>> End Test Output'\n"
    assert without_tests(f"set -x\n{brings}{rest}{checkout}") == f"set -x\n{rest}"
    assert without_tests(rest) is None


def test_the_packages_own_verdict_is_its_reports() -> None:
    lists = {"FAIL_TO_PASS": {"success": ["a"], "failure": []}, "PASS_TO_PASS": {"success": ["b"], "failure": ["c"]}}
    failed = package_verdict({"resolved": False, "tests_status": lists}, "log")
    assert (failed.status, failed.tests_passed, failed.tests_failed, failed.log) == ("failed", 2, 1, "log")
    assert package_verdict({"resolved": True}, "").reward == 1.0


def test_the_files_of_the_test_patch_are_protected() -> None:
    assert SweBenchJudge().test_files(SweBenchSpec(instance={"test_patch": PATCH})) == ("tests/t.py",)


@pytest.mark.skipif(INSTALLED, reason="the package is installed")
def test_without_the_package_the_remedy_is_named() -> None:
    with pytest.raises(ConfigError, match=r"rl_agent\[swebench\]"):
        package_of({"instance_id": "a"})
    grader: Auto = AutoConfig().build()
    with pytest.raises(ConfigError, match=r"rl_agent\[swebench\]"):
        grader.require_usable(calc_task(grader=SweBenchSpec(instance={"instance_id": "a"})))


@needs_package
def test_the_package_makes_the_script_of_a_published_row_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.socket.connect")
    found = package_of(row())
    assert (found.fail_to_pass, len(found.pass_to_pass), found.eval_type) == ((EMPTY,), 58, "pass_and_fail")
    assert "pytest -rA tests/test_blueprints.py" in found.script
    assert "git checkout 7ee9ceb71e868944a46e1ff00b506772a53a4f1d tests/test_blueprints.py" in found.script


@needs_package
@pytest.mark.parametrize(("log", "status", "passed"), [("gold.log", "solved", 59), ("base.log", "failed", 58)])
def test_real_logs_give_the_verdict_that_the_package_gives(log: str, status: str, passed: int) -> None:
    found = package_of(row())
    content = (DATA / log).read_bytes()
    verdict = judge_statuses(found, statuses(found, content))
    assert (verdict.status, verdict.tests_passed) == (status, passed)
    theirs = package_verdict(report(found, content), "")
    assert (theirs.status, theirs.tests_passed) == (status, passed)


@needs_package
async def test_a_real_log_is_read_alike_in_a_process_of_its_own() -> None:
    found, content = package_of(row()), (DATA / "gold.log").read_bytes()
    assert await read_log(STATUSES, row(), content, timeout_s=300) == statuses(found, content)
    assert await read_log(REPORT, row(), content, timeout_s=300) == report(found, content)


FAKE_GRADING = """
import re

def get_logs_eval(spec, path):
    text = open(path).read()
    if "slow" in text:
        re.search("(a|a)*$", "a" * 40 + "b")
    if "broken" in text:
        raise TypeError("no such line")
    return {"a": "PASSED", "b": "XFAIL"}, True
"""
FAKE_UTILS = """
from types import SimpleNamespace

def make_test_spec(row):
    return SimpleNamespace(eval_script="", repo="r", eval_type=row["eval_type"])
"""
FAKE_ROW = {"instance_id": "a", "eval_script": "true", "log_parser": "x", "eval_type": "pass_and_fail"}


@pytest.fixture
def fake_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `swebench` of the shape of 5.x, for processes that are started from here."""
    harness = tmp_path / "swebench" / "harness"
    harness.mkdir(parents=True)
    for name, text in {"__init__": "", "grading": FAKE_GRADING, "utils": FAKE_UTILS}.items():
        (harness / f"{name}.py").write_text(text)
    (harness.parent / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))


def block(text: str) -> bytes:
    return f">>>>> Start Test Output\n{text}\n>>>>> End Test Output\n".encode()


@pytest.mark.usefixtures("fake_package")
async def test_a_parser_that_takes_for_ever_over_a_log_is_ended_and_holds_nobody_up() -> None:
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.05)
            beats += 1

    assert await read_log(STATUSES, FAKE_ROW, block("fine"), timeout_s=120) == {"a": "passed", "b": "xfailed"}
    async with asyncio.TaskGroup() as group:
        beating = group.create_task(beat())
        with pytest.raises(ParserError, match="ran longer than"):
            await read_log(STATUSES, FAKE_ROW, block("slow"), timeout_s=1)
        beating.cancel()
    assert beats > 5


@pytest.mark.usefixtures("fake_package")
async def test_a_parser_that_breaks_over_a_log_is_a_graders_error_with_its_reason() -> None:
    with pytest.raises(ParserError, match="no such line"):
        await read_log(STATUSES, FAKE_ROW, block("broken"), timeout_s=120)


@needs_package
def test_a_skipped_test_is_no_solution_whatever_the_package_says() -> None:
    found = package_of(row())
    content = (DATA / "gold.log").read_bytes().replace(f"PASSED {EMPTY}".encode(), f"SKIPPED {EMPTY}".encode())
    assert judge_statuses(found, statuses(found, content)).status == "failed"


@needs_package
def test_a_row_that_the_package_does_not_know_is_a_fault_of_the_task() -> None:
    with pytest.raises(SetupError, match=r"a__b-1"):
        package_of({"instance_id": "a__b-1", "repo": "a/b", "version": "1", "test_patch": "", "base_commit": "c"})

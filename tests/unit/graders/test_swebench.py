"""The verdict of the swebench package's reports; without the package, the remedy is named."""

from __future__ import annotations

import importlib.util

import pytest

from rl_agent.errors import ConfigError
from rl_agent.graders.swebench import SweBenchJudge, verdict_of
from rl_agent.tasks.task import SweBenchSpec

PATCH = "diff --git a/tests/t.py b/tests/t.py\n--- a/tests/t.py\n+++ b/tests/t.py\n@@ -1 +1 @@\n-1\n+2\n"


def report(*, resolved: bool, failure: list[str]) -> dict[str, object]:
    lists = {"FAIL_TO_PASS": {"success": ["a"], "failure": failure}, "PASS_TO_PASS": {"success": ["b"], "failure": []}}
    return {"resolved": resolved, "tests_status": lists}


def test_a_report_is_solved_when_it_is_resolved_and_no_named_test_failed() -> None:
    solved = verdict_of(report(resolved=True, failure=[]), "log")
    assert (solved.status, solved.reward, solved.tests_passed, solved.log) == ("solved", 1.0, 2, "log")
    for resolved in (True, False):
        failed = verdict_of(report(resolved=resolved, failure=["c"]), "")
        assert (failed.status, failed.tests_failed) == ("failed", 1)
    assert verdict_of({"resolved": False}, "").reward == 0.0


def test_the_files_of_the_test_patch_are_protected() -> None:
    assert SweBenchJudge().test_files(SweBenchSpec(instance={"test_patch": PATCH})) == ("tests/t.py",)


@pytest.mark.skipif(importlib.util.find_spec("swebench") is not None, reason="the package is installed")
def test_without_the_package_the_remedy_is_named() -> None:
    spec = SweBenchSpec(instance={"instance_id": "a"})
    with pytest.raises(ConfigError, match=r"rl_agent\[swebench\]"):
        SweBenchJudge().assets(spec, None)  # type: ignore[arg-type]

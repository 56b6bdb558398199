"""Judges with the `swebench` package (4.1 or 5.x, optional): its evaluation script in the sandbox, its grading on this machine."""

from __future__ import annotations

import asyncio
import importlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rl_agent.errors import ConfigError, GraderError
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.graders.diff import touched_paths
from rl_agent.graders.judge import CACHES_OFF, TOOLS, Assets, PatchGrader
from rl_agent.graders.workspace import printed
from rl_agent.tasks.task import SweBenchSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rl_agent.graders.judge import Judge, Options, Trial

SCRIPT: Final = "swebench_eval.sh"
LISTS: Final = ("FAIL_TO_PASS", "PASS_TO_PASS")


class SweBenchJudge:
    """See `Judge`."""

    def test_files(self, spec: SweBenchSpec) -> Sequence[str]:
        """See `Judge.test_files`."""
        patch = str(spec.instance.get("test_patch") or "")
        return tuple(path.decode(errors="replace") for path in touched_paths(patch.encode()))

    def assets(self, spec: SweBenchSpec, options: Options) -> Assets:
        """See `Judge.assets`."""
        return Assets(tools={SCRIPT: str(_test_spec(spec.instance).eval_script)})

    async def run(self, trial: Trial, spec: SweBenchSpec) -> Verdict:
        """See `Judge.run`. The script is root's: it installs the project and restores the tests."""
        result = await trial.sandbox.exec(
            f"bash {TOOLS}/{SCRIPT} 2>&1",
            user="root",
            cwd=trial.task.workdir,
            env=CACHES_OFF,
            timeout=trial.options.timeout_s,
        )
        log = printed(result, trial.options.max_log_bytes)
        if result.timed_out:
            return Verdict(status=VerdictStatus.TIMEOUT, reward=0.0, tests_failed=1, log=log)
        report = await asyncio.to_thread(_report, spec.instance, result.stdout)
        if report.get("infra_failure"):
            raise GraderError(f"swebench: {report.get('infra_failure_reason')}")
        return verdict_of(report, log)


def verdict_of(report: Mapping[str, Any], log: str) -> Verdict:
    """The verdict of a report of swebench's."""
    tests = report.get("tests_status") or {}
    passed = sum(len(tests.get(kind, {}).get("success", ())) for kind in LISTS)
    missed = {name: "failed" for kind in LISTS for name in tests.get(kind, {}).get("failure", ())}
    solved = bool(report.get("resolved")) and not missed
    return Verdict(
        status=VerdictStatus.SOLVED if solved else VerdictStatus.FAILED,
        reward=float(solved),
        tests_passed=passed,
        tests_failed=len(missed) or int(not solved),
        log=log,
        metadata={"tests_missed": dict(list(missed.items())[:20])} if missed else {},
    )


def _test_spec(instance: Mapping[str, Any]) -> Any:
    """The package's own specification of a row; 5.x takes what 4.1 computes from the row itself."""
    try:
        utils = importlib.import_module("swebench.harness.utils")
        if not hasattr(utils, "make_test_spec"):  # 4.1
            utils = importlib.import_module("swebench.harness.test_spec.test_spec")
    except ImportError as error:
        raise ConfigError(
            f"the row {instance.get('instance_id')} needs the package swebench: {error}. Remedy: pip install 'rl_agent[swebench]'"
        ) from error
    row = {**instance, **{kind: _listed(instance.get(kind)) for kind in LISTS}}
    return utils.make_test_spec(row)


def _listed(value: Any) -> list[str]:
    return [str(name) for name in (json.loads(value) if isinstance(value, str) else value or ())]


def _report(instance: Mapping[str, Any], log: bytes) -> dict[str, Any]:
    grading = importlib.import_module("swebench.harness.grading")
    name = str(instance["instance_id"])
    prediction = {"instance_id": name, "model_patch": "applied", "model_name_or_path": "policy"}
    with tempfile.TemporaryDirectory(prefix="rl_agent-swebench-") as folder:
        path = Path(folder, "test_output.txt")
        path.write_bytes(log)
        reports = grading.get_eval_report(_test_spec(instance), prediction, str(path), include_tests_status=True)
    report: dict[str, Any] = reports[name]
    return report


class SweBench(PatchGrader):
    """Judges tasks that have a `SweBenchSpec`."""

    judges: ClassVar[Mapping[type, Judge]] = {SweBenchSpec: SweBenchJudge()}

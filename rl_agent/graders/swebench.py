"""Judges with the optional `swebench` package (4.1 or 5.x): its script runs in the sandbox, its log parser on this machine.

Each named test must be seen and pass. The package's own verdict, which accepts skipped tests, counts only with
`grader.strict=false`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from typing_extensions import override

from rl_agent.config.grader import GraderConfig
from rl_agent.errors import SetupError
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.graders.judge import PatchGrader
from rl_agent.graders.names import Names, worst_by_name
from rl_agent.graders.outcomes import KEEP_GOING
from rl_agent.graders.parse import ParserError
from rl_agent.graders.sandboxed import CACHES_OFF, TOOLS, TestRun, Tests
from rl_agent.graders.swebench_log import REPORT, STATUSES, read_log
from rl_agent.graders.swebench_package import FAIL_ONLY, package_of, without_tests
from rl_agent.tasks.task import SweBenchSpec
from rl_agent.workspace.diff import touched_paths
from rl_agent.workspace.workspace import printed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rl_agent.graders.sandboxed import Judge, Trial
    from rl_agent.workspace.workspace import Files

SCRIPT: Final = "swebench_eval.sh"
LISTS: Final = ("FAIL_TO_PASS", "PASS_TO_PASS")
PIP: Final = {"PIP_RETRIES": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
"""The scripts reinstall the project. Without a network, retries only cost time."""


class SweBenchJudge:
    """See `Judge`."""

    reads_docstrings = True

    def names(self, spec: SweBenchSpec) -> Names:
        """See `Judge.names`."""
        package = package_of(spec.instance)
        return Names(fail_to_pass=package.fail_to_pass, pass_to_pass=package.pass_to_pass)

    def test_files(self, spec: SweBenchSpec) -> Sequence[str]:
        """See `Judge.test_files`."""
        return tuple(path.decode(errors="replace") for path in touched_paths(_test_patch(spec)))

    def sources(self, spec: SweBenchSpec) -> Sequence[str]:
        """See `Judge.sources`."""
        return self.test_files(spec)

    def tests(self, spec: SweBenchSpec) -> Tests:
        """See `Judge.tests`. Raises ConfigError without the package, SetupError for a row that it does not know."""
        is_ours = without_tests(package_of(spec.instance).script) is not None
        return Tests(patch=_test_patch(spec) if is_ours else b"")

    def controls(self, spec: SweBenchSpec) -> Mapping[str, str]:
        """See `Judge.controls`."""
        return {}

    def tools(self, spec: SweBenchSpec, options: GraderConfig) -> Files:
        """See `Judge.tools`."""
        script = package_of(spec.instance).script
        return {SCRIPT: (without_tests(script) or script) if options.strict else script}

    async def run(self, trial: Trial, spec: SweBenchSpec) -> TestRun:
        """See `Judge.run`. The script installs the project; as the agent, where strict."""
        options, package = trial.options, package_of(spec.instance)
        if options.strict and package.eval_type == FAIL_ONLY:
            raise SetupError(
                f"task {trial.task.task_id}: the log parser of {package.repo} records failures only, so that no test can be "
                "seen to pass. Leave the row out, or set grader.strict=false."
            )
        result = await trial.sandbox.exec(
            f"{KEEP_GOING if trial.is_mixed else ''}bash {TOOLS}/{SCRIPT} 2>&1",
            user="agent" if options.strict else "root",
            cwd=trial.task.workdir,
            env={**CACHES_OFF, **PIP},
            timeout=options.timeout_s,
        )
        log, exit_code = printed(result, options.max_log_bytes), result.exit_code
        if result.timed_out:
            return TestRun(timed_out=True, exit_code=exit_code, log=log)
        timeout_s = options.parser_timeout_s
        try:
            if not options.strict:
                report = await read_log(REPORT, spec.instance, result.stdout, timeout_s=timeout_s)
                return TestRun(exit_code=exit_code, log=log, verdict=package_verdict(report, log))
            statuses = await read_log(STATUSES, spec.instance, result.stdout, timeout_s=timeout_s)
        except ParserError as error:
            return TestRun(exit_code=exit_code, log=log, problem=str(error))
        return TestRun(outcomes=worst_by_name(statuses.items()), exit_code=exit_code, log=log)

    def verdict(self, spec: SweBenchSpec, run: TestRun, options: GraderConfig) -> Verdict:
        """See `Judge.verdict`."""
        skipped = options.skipped_pass_to_pass
        return self.names(spec).verdict(run.outcomes, log=run.log, skipped_pass_to_pass=skipped)


def _test_patch(spec: SweBenchSpec) -> bytes:
    return str(spec.instance.get("test_patch") or "").encode()


def package_verdict(report: Mapping[str, Any], log: str) -> Verdict:
    """Return the verdict of a report of the package."""
    tests = report.get("tests_status") or {}
    passed = sum(len(tests.get(kind, {}).get("success", ())) for kind in LISTS)
    missed = {name: "failed" for kind in LISTS for name in tests.get(kind, {}).get("failure", ())}
    solved = bool(report.get("resolved"))
    return Verdict(
        status=VerdictStatus.SOLVED if solved else VerdictStatus.FAILED,
        reward=float(solved),
        tests_passed=passed,
        tests_failed=len(missed) or int(not solved),
        log=log,
        metadata={"tests_missed": dict(list(missed.items())[:20])} if missed else {},
    )


@dataclass(kw_only=True)
class SweBenchConfig(GraderConfig):
    """The `swebench` package (optional extra `swebench`)."""

    @override
    def build(self) -> SweBench:
        return SweBench(self)


class SweBench(PatchGrader):
    """Judges tasks that have a `SweBenchSpec`."""

    judges: ClassVar[Mapping[type, Judge]] = {SweBenchSpec: SweBenchJudge()}

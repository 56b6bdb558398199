"""Judges by the task's own command: exit code 0 is solved. Where the row names tests, pytest must have seen each pass besides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

from typing_extensions import override

from rl_agent.config.grader import GraderConfig
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.graders.judge import PatchGrader, command_run
from rl_agent.graders.names import Names
from rl_agent.graders.outcomes import plugin, read_outcomes, with_plugin
from rl_agent.graders.sandboxed import TestRun, Tests
from rl_agent.tasks.task import EvalCmdSpec
from rl_agent.twins.make import COMMAND

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rl_agent.graders.sandboxed import Judge, Trial
    from rl_agent.workspace.workspace import Files

TESTS_OF_REPOSITORIES: Final = (
    *("test_*.py", "*/test_*.py", "*_test.py", "*_test.go", "tests/*.rs", "*_spec.rb", "*Test.java"),
    *("*.test.[jt]s", "*.test.[jt]sx", "*.test.[cm]js", "*.spec.[jt]s", "*.spec.[jt]sx", "test/*.[cm]js", "test/*.js"),
)
"""Where tests are looked for if the row names no files."""


class EvalCmdJudge:
    """See `Judge`."""

    reads_docstrings = False

    def names(self, spec: EvalCmdSpec) -> Names:
        """See `Judge.names`."""
        if not (spec.fail_to_pass or spec.pass_to_pass):
            return Names(fail_to_pass=(COMMAND,))
        return Names(fail_to_pass=spec.fail_to_pass, pass_to_pass=spec.pass_to_pass)

    def test_files(self, spec: EvalCmdSpec) -> Sequence[str]:
        """See `Judge.test_files`. Hidden files need no protection: they replace whatever stands in their place."""
        named = Names(fail_to_pass=spec.fail_to_pass, pass_to_pass=spec.pass_to_pass)
        return tuple(dict.fromkeys((*spec.test_files, *named.files)))

    def sources(self, spec: EvalCmdSpec) -> Sequence[str]:
        """See `Judge.sources`."""
        return self.test_files(spec) or (() if spec.files else TESTS_OF_REPOSITORIES)

    def tests(self, spec: EvalCmdSpec) -> Tests:
        """See `Judge.tests`."""
        return Tests(files=spec.files)

    def controls(self, spec: EvalCmdSpec) -> Mapping[str, str]:
        """See `Judge.controls`."""
        return spec.controls

    def tools(self, spec: EvalCmdSpec, options: GraderConfig) -> Files:
        """See `Judge.tools`."""
        return {} if _exit_code_decides(spec, options) else plugin()

    async def run(self, trial: Trial, spec: EvalCmdSpec) -> TestRun:
        """See `Judge.run`."""
        if _exit_code_decides(spec, trial.options):
            return await command_run(trial, spec.eval_cmd)
        run = await command_run(trial, with_plugin(spec.eval_cmd, trial))
        if run.timed_out:
            return run
        return replace(run, outcomes=await read_outcomes(trial.sandbox))

    def verdict(self, spec: EvalCmdSpec, run: TestRun, options: GraderConfig) -> Verdict:
        """See `Judge.verdict`."""
        names = Names(fail_to_pass=(COMMAND,)) if _exit_code_decides(spec, options) else self.names(spec)
        verdict = names.verdict(run.outcomes, log=run.log, skipped_pass_to_pass=options.skipped_pass_to_pass)
        if run.exit_code == 0:
            return verdict
        metadata = {**verdict.metadata, "exit_code": run.exit_code}
        failed = max(1, verdict.tests_failed)
        return replace(verdict, status=VerdictStatus.FAILED, reward=0.0, tests_failed=failed, metadata=metadata)


def _exit_code_decides(spec: EvalCmdSpec, options: GraderConfig) -> bool:
    return not options.strict or not (spec.fail_to_pass or spec.pass_to_pass)


@dataclass(kw_only=True)
class EvalCmdConfig(GraderConfig):
    """The task's own command: exit code 0 means solved."""

    @override
    def build(self) -> EvalCmd:
        return EvalCmd(self)


class EvalCmd(PatchGrader):
    """Judges tasks that have an `EvalCmdSpec`."""

    judges: ClassVar[Mapping[type, Judge]] = {EvalCmdSpec: EvalCmdJudge()}

"""Judges by the task's own command: exit code 0 is solved.

An exit code alone is easily forged by code that shares a process with its tests (`docs/graders.md` lists how). Where the row
names tests, pytest itself must have seen each of them pass besides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from rl_agent.config.grader import GraderConfig
from rl_agent.graders import confirm
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.graders.judge import CACHES_OFF, Assets, PatchGrader
from rl_agent.graders.names import Named, outcomes_of
from rl_agent.tasks.task import EvalCmdSpec
from rl_agent.workspace.workspace import printed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rl_agent.graders.judge import Judge, Trial


class EvalCmdJudge:
    """See `Judge`."""

    def test_files(self, spec: EvalCmdSpec) -> Sequence[str]:
        """See `Judge.test_files`. Hidden files need no protection: they replace whatever stands in their place."""
        named = (name.partition("::")[0] for name in (*spec.fail_to_pass, *spec.pass_to_pass))
        return tuple(dict.fromkeys((*spec.test_files, *named)))

    def assets(self, spec: EvalCmdSpec, options: GraderConfig) -> Assets:
        """See `Judge.assets`."""
        return Assets(hidden=spec.files, tools=confirm.plugin() if _names_tests(spec, options) else {})

    async def run(self, trial: Trial, spec: EvalCmdSpec) -> Verdict:
        """See `Judge.run`."""
        options = trial.options
        named = _names_tests(spec, options)
        command = (confirm.EXPORTS if named else "") + spec.eval_cmd
        result = await trial.sandbox.exec(command, cwd=trial.task.workdir, env=CACHES_OFF, timeout=options.timeout_s)
        log = printed(result, options.max_log_bytes)
        if result.timed_out:
            return Verdict(status=VerdictStatus.TIMEOUT, reward=0.0, tests_failed=1, log=log)
        verdict = None
        if named:
            outcomes = outcomes_of((*spec.fail_to_pass, *spec.pass_to_pass), await confirm.told(trial.sandbox))
            tests = Named(fail_to_pass=spec.fail_to_pass, pass_to_pass=spec.pass_to_pass, outcomes=outcomes)
            verdict = tests.verdict(log=log, skipped_pass_to_pass=options.skipped_pass_to_pass)
        if result.exit_code == 0:
            return verdict or Verdict(status=VerdictStatus.SOLVED, reward=1.0, tests_passed=1, log=log)
        metadata = {**(verdict.metadata if verdict else {}), "exit_code": result.exit_code}
        return Verdict(
            status=VerdictStatus.FAILED,
            reward=0.0,
            tests_passed=verdict.tests_passed if verdict else 0,
            tests_failed=max(1, verdict.tests_failed if verdict else 1),
            log=log,
            metadata=metadata,
        )


def _names_tests(spec: EvalCmdSpec, options: GraderConfig) -> bool:
    return options.strict and bool(spec.fail_to_pass or spec.pass_to_pass)


@dataclass(kw_only=True)
class EvalCmdConfig(GraderConfig):
    """The task's own command: exit code 0 means solved."""

    @override
    def build(self) -> EvalCmd:
        return EvalCmd(self)


class EvalCmd(PatchGrader):
    """Judges tasks that have an `EvalCmdSpec`."""

    judges: ClassVar[Mapping[type, Judge]] = {EvalCmdSpec: EvalCmdJudge()}

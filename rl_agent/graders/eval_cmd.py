"""Judges by the task's own command: exit code 0 is solved.

An exit code alone is easily forged by code that shares a process with its tests (`docs/graders.md` lists how); rows that
name their tests are judged better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.graders.judge import CACHES_OFF, Assets, PatchGrader
from rl_agent.graders.workspace import printed
from rl_agent.tasks.task import EvalCmdSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rl_agent.graders.judge import Judge, Options, Trial


class EvalCmdJudge:
    """See `Judge`."""

    def test_files(self, spec: EvalCmdSpec) -> Sequence[str]:
        """See `Judge.test_files`. Hidden files need no protection: they replace whatever stands in their place."""
        return spec.test_files

    def assets(self, spec: EvalCmdSpec, options: Options) -> Assets:
        """See `Judge.assets`."""
        return Assets(hidden=spec.files)

    async def run(self, trial: Trial, spec: EvalCmdSpec) -> Verdict:
        """See `Judge.run`."""
        options = trial.options
        result = await trial.sandbox.exec(
            spec.eval_cmd, cwd=trial.task.workdir, env=CACHES_OFF, timeout=options.timeout_s
        )
        log = printed(result, options.max_log_bytes)
        if result.timed_out:
            return Verdict(status=VerdictStatus.TIMEOUT, reward=0.0, tests_failed=1, log=log)
        if result.exit_code == 0:
            return Verdict(status=VerdictStatus.SOLVED, reward=1.0, tests_passed=1, log=log)
        metadata = {"exit_code": result.exit_code}
        return Verdict(status=VerdictStatus.FAILED, reward=0.0, tests_failed=1, log=log, metadata=metadata)


class EvalCmd(PatchGrader):
    """Judges tasks that have an `EvalCmdSpec`."""

    judges: ClassVar[Mapping[type, Judge]] = {EvalCmdSpec: EvalCmdJudge()}

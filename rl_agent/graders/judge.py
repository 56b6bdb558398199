"""What all graders share: screening, the run of the tests, the mixed runs, retries, and what the verdict records."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rl_agent.config.grader import WithoutControl
from rl_agent.errors import GraderError, SandboxError, SetupError
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.graders.control import TwinStore
from rl_agent.graders.names import NAMES_SHOWN, is_phantom, seen_names
from rl_agent.graders.sandboxed import CACHES_OFF, TestRun, run_tests
from rl_agent.graders.screen import PatchProblem, Screened, in_the_way, protection, screen
from rl_agent.graders.signals import Signal, find_signals
from rl_agent.twins.make import COMMAND, RunTests, Seen
from rl_agent.twins.mixed import Control, Finding, mixed_runs
from rl_agent.workspace.capture import why_not_captured
from rl_agent.workspace.diff import sections, touched_paths
from rl_agent.workspace.workspace import printed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rl_agent.config.grader import GraderConfig
    from rl_agent.graders.sandboxed import Applied, Judge, Trial
    from rl_agent.sandboxes.base import SandboxProvider
    from rl_agent.tasks.task import Task

_STATUS: Final = {
    Finding.right: VerdictStatus.SOLVED,
    Finding.no_control: VerdictStatus.SOLVED,
    Finding.tampered: VerdictStatus.TAMPERED,
    Finding.unsteady: VerdictStatus.FAILED,
}


class PatchGrader:
    """See `Grader`. A subclass names its judges."""

    judges: ClassVar[Mapping[type, Judge]] = {}
    """Kind of specification -> its judge."""

    def __init__(self, config: GraderConfig) -> None:
        self._config = config
        self._twins = TwinStore(config)

    def require_usable(self, task: Task) -> None:
        """Raise ConfigError if tasks of this kind cannot be judged here: an optional package is missing."""
        with contextlib.suppress(SetupError):  # a fault of this one task
            self._judge_of(task).tests(task.grader)

    async def grade(self, task: Task, patch: bytes, provider: SandboxProvider, *, even_empty: bool = False) -> Verdict:
        """See `Grader.grade`."""
        judge = self._judge_of(task)
        if not patch and not even_empty:
            return Verdict(status=VerdictStatus.EMPTY_DIFF, reward=0.0)
        started = time.monotonic()
        screened = await asyncio.to_thread(self._screen, task, judge, patch)  # which may be megabytes
        verdict = _early(screened, even_empty=even_empty)
        if verdict is None:
            verdict = await self._judged(task, judge, screened.patch, provider)
            verdict = replace(verdict, seconds=time.monotonic() - started)
        return await asyncio.to_thread(self._recorded, verdict, screened)

    def _judge_of(self, task: Task) -> Judge:
        judge = self.judges.get(type(task.grader))
        if judge is None:
            known = ", ".join(sorted(kind.__name__ for kind in self.judges))
            raise GraderError(
                f"grader: task {task.task_id} has a specification of type {type(task.grader).__name__}, but this grader "
                f"judges only {known}. Set grader=auto."
            )
        return judge

    def _screen(self, task: Task, judge: Judge, patch: bytes) -> Screened:
        options = self._config
        if reason := why_not_captured(patch):
            return _inapplicable(reason)
        hidden = [pattern for path in task.hidden_paths for pattern in (path, f"{path}/*")]
        brought = _brought(judge, task)
        guard = protection(judge.test_files(task.grader), more=(*options.protected_paths, *hidden), brought=brought)
        if not options.strict:
            found = list(sections(patch))
            blocking = [f"{section.name} {reason}" for section in found if (reason := in_the_way(section, guard))]
            return _inapplicable("; ".join(blocking)) if blocking else Screened(patch=patch, sections=found)
        return screen(patch, guard, max_bytes=options.max_patch_bytes, max_files=options.max_files)

    async def _judged(self, task: Task, judge: Judge, patch: bytes, provider: SandboxProvider) -> Verdict:
        """Return the verdict of a patch in sandboxes; `infra_error` if they fail."""
        try:
            applied = await self._run(task, judge, patch, provider)
            verdict = self._first_verdict(task, judge, applied)
            if verdict.status is VerdictStatus.SOLVED and self._config.strict and self._config.mixed_runs:
                assert applied.run is not None
                verdict = await self._controlled(task, judge, patch, provider, applied.run, verdict)
        except (SandboxError, GraderError) as error:
            return Verdict(status=VerdictStatus.INFRA_ERROR, reward=None, log=str(error))
        except SetupError as error:  # the task's fault, so another sandbox would not help
            metadata = {"setup_failed": True}
            return Verdict(status=VerdictStatus.INFRA_ERROR, reward=None, log=str(error), metadata=metadata)
        return verdict

    async def _run(
        self,
        task: Task,
        judge: Judge,
        patch: bytes,
        provider: SandboxProvider,
        mixed: Mapping[str, bytes] | None = None,
    ) -> Applied:
        """Run the tests, in another sandbox if one is lost. Raises SandboxError or GraderError after `grader.retries`."""
        for _ in range(self._config.retries):
            with contextlib.suppress(SandboxError, GraderError):
                return await run_tests(judge, task, patch, provider, self._config, mixed=mixed)
        return await run_tests(judge, task, patch, provider, self._config, mixed=mixed)

    def _first_verdict(self, task: Task, judge: Judge, applied: Applied) -> Verdict:
        """Return the verdict by the original tests."""
        run = applied.run
        if run is None:
            return Verdict(status=VerdictStatus.APPLY_FAILED, reward=0.0, log=applied.log)
        if run.timed_out:
            failed = len(judge.names(task.grader).all)
            return Verdict(status=VerdictStatus.TIMEOUT, reward=0.0, tests_failed=failed, log=run.log)
        verdict = run.verdict or judge.verdict(task.grader, run, self._config)
        metadata = dict(verdict.metadata)
        if applied.rung:
            metadata["applied"] = applied.rung
        if run.problem:
            metadata["problem"] = run.problem
        if phantoms := [name for name in judge.names(task.grader).all if is_phantom(name)]:
            metadata["phantom_names"] = phantoms[:NAMES_SHOWN]
        return replace(verdict, metadata=metadata)

    async def _controlled(
        self, task: Task, judge: Judge, patch: bytes, provider: SandboxProvider, first: TestRun, verdict: Verdict
    ) -> Verdict:
        """Return the verdict after the mixed runs of a submission that passes."""
        names = judge.names(task.grader)
        twins = await self._twins.of(judge, task, provider)
        if not twins.is_validated:
            twins = twins.named(lambda name: seen_names(name, first.outcomes))

        def runs_of(patch: bytes) -> RunTests:
            async def run(files: Mapping[str, bytes]) -> Seen:
                applied = await self._run(task, judge, patch, provider, mixed=files)
                return Seen(outcomes=applied.run.outcomes, log=applied.run.log) if applied.run else Seen(outcomes={})

            return run

        gold = None if task.gold_patch is None else runs_of(task.gold_patch.encode())
        outcomes = {seen: first.outcomes[seen] for name in names.all for seen in seen_names(name, first.outcomes)}
        must_turn = [seen for name in names.fail_to_pass for seen in seen_names(name, first.outcomes)]
        rng = random.Random(secrets.randbits(64))  # noqa: S311 (seeded by a secret)
        control = await mixed_runs(twins, outcomes, must_turn, runs_of(patch), rng, gold=gold)
        if control.has_learned:
            await self._twins.keep(task, twins)
        metadata = {**verdict.metadata, "control": _record(control)}
        if control.finding is Finding.no_control and self._config.without_control is WithoutControl.refuse:
            raise SetupError(
                f"grader.without_control=refuse: task {task.task_id} has no test that can be made wrong. "
                "Set grader.without_control=allow, or leave the task out."
            )
        status = _STATUS[control.finding]
        reward = verdict.reward if status is VerdictStatus.SOLVED else 0.0
        return replace(verdict, status=status, reward=reward, metadata=metadata)

    def _recorded(self, verdict: Verdict, screened: Screened) -> Verdict:
        """Return the verdict with the dropped paths, the signals and the penalty."""
        found = find_signals(screened.sections)
        if screened.protected:
            found[Signal.PROTECTED_PATH] = list(screened.protected)
        metadata = {**verdict.metadata}
        if screened.dropped:
            metadata["dropped_paths"] = dict(screened.dropped)
        if found:
            metadata["signals"] = {str(name): sorted(set(where)) for name, where in found.items()}
        reward = verdict.reward
        if verdict.status is VerdictStatus.TAMPERED and reward is not None:
            reward -= self._config.penalty
        return replace(verdict, reward=reward, metadata=metadata)


async def command_run(trial: Trial, command: str) -> TestRun:
    """Run a command as the agent; its exit code is the outcome of the only test, `COMMAND`."""
    options = trial.options
    result = await trial.sandbox.exec(command, cwd=trial.task.workdir, env=CACHES_OFF, timeout=options.timeout_s)
    outcome = "passed" if result.exit_code == 0 else "failed"
    return TestRun(
        outcomes={} if result.timed_out else {COMMAND: outcome},
        exit_code=result.exit_code,
        timed_out=result.timed_out,
        log=printed(result, options.max_log_bytes),
    )


def _record(control: Control) -> dict[str, Any]:
    """Return what a rollout's record keeps of its mixed runs."""
    record: dict[str, Any] = {"finding": str(control.finding), "runs": control.runs}
    if control.tests_without_twin:
        record["tests_without_twin"] = control.tests_without_twin
    return record


def _inapplicable(reason: str) -> Screened:
    problem = PatchProblem(status=VerdictStatus.APPLY_FAILED, reason=reason)
    return Screened(patch=b"", sections=(), problem=problem)


def _brought(judge: Judge, task: Task) -> list[str]:
    """Return the files that bring the tests; none if the task is at fault, which is reported when they are needed."""
    with contextlib.suppress(SetupError):
        tests = judge.tests(task.grader)
        return [*tests.files, *(path.decode(errors="replace") for path in touched_paths(tests.patch))]
    return []


def _early(screened: Screened, *, even_empty: bool) -> Verdict | None:
    """Return the verdict of a patch that needs no sandbox."""
    if screened.problem is not None:
        return Verdict(status=screened.problem.status, reward=0.0, log=screened.problem.reason)
    if screened.patch or even_empty:
        return None
    listed = "; ".join(f"{path}: {reason}" for path, reason in screened.dropped.items())
    return Verdict(status=VerdictStatus.EMPTY_DIFF, reward=0.0, log=f"nothing of the patch reaches the tests: {listed}")

"""The validate job: each task's gold patch must pass repeatedly, and an empty patch must fail.

Infrastructure failures say nothing about a task. The task is retried, then left undecided, and a resumed job validates
it again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rl_agent.errors import GraderError, InfraError, SetupError
from rl_agent.graders.base import Grader, Verdict, VerdictStatus
from rl_agent.rollout.attempts import run_attempts
from rl_agent.rollout.failures import backoff_s
from rl_agent.run_folder import QUARANTINE, write_atomic
from rl_agent.tasks.source import FiniteTaskSource, first_tasks
from rl_agent.workspace.capture import capture
from rl_agent.workspace.workspace import booted, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rl_agent.config.rollout import FailuresConfig
    from rl_agent.config.schema import Config
    from rl_agent.jobs.configs import ValidateConfig
    from rl_agent.run_folder import RunFolder
    from rl_agent.sandboxes.base import SandboxProvider
    from rl_agent.tasks.task import Task

log = logging.getLogger(__name__)

ENDLESS_TASKS: Final = 50
"""Number of tasks from an endless source if the config gives none."""
DETAIL_SHOWN: Final = 2000
VALIDATED: Final = "validated.jsonl"
PASSES_ORIGINALS: Final = (VerdictStatus.SOLVED, VerdictStatus.TAMPERED)
"""An empty patch that passes wrong tests as well shows that the tests test nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Result of validating one task."""

    task_id: str
    reason: str = ""
    """Empty for a good task, else the reason for its quarantine: setup_failed, solved_without_a_change, gold_patch_fails, flaky."""
    detail: str = ""
    gold: int = -1
    """Number of passes of the gold patch, or -1 if the task has none."""
    has_control: bool = True
    """False if no test of the task can be made wrong, so that mixed runs show nothing."""
    seconds: float = 0.0


def run(config: Config, job: ValidateConfig, folder: RunFolder) -> None:
    """Run the job. It writes validated.jsonl, quarantine.jsonl and summary.json to the run folder."""
    asyncio.run(_run(config, job, folder))


async def _run(config: Config, job: ValidateConfig, folder: RunFolder) -> None:
    source, provider, grader = config.data.build(), config.sandbox.build(), config.grader.build()
    await provider.sweep()
    known = _known(folder.root)
    tasks = first_tasks(source, config.seed, job.tasks, of_endless=ENDLESS_TASKS)
    console = Console(stderr=True)
    console.print(f"run folder: {folder.root}")
    started = time.perf_counter()
    counts: Counter[str] = Counter(known.values())
    without_gold, without_control = set[str](), set[str]()
    with Progress(
        TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    ) as progress:
        bar = progress.add_task(
            "validating", total=job.tasks or (None if isinstance(source, FiniteTaskSource) else ENDLESS_TASKS)
        )

        def found(finding: Finding) -> None:
            counts[finding.reason] += 1
            if not finding.reason:
                without_gold.update([finding.task_id] if finding.gold < 0 else [])
                without_control.update([] if finding.has_control else [finding.task_id])
            name = QUARANTINE if finding.reason else VALIDATED
            with Path(folder.root, name).open("a") as file:
                file.write(json.dumps(asdict(finding)) + "\n")
            bad = sum(number for reason, number in counts.items() if reason)
            progress.update(bar, advance=1, description=f"validating, {bad} in quarantine")

        validator = Validator(
            provider, grader, Workspaces(provider, config.rollout.workspace_timeout_s), passes=job.passes
        )
        left = (task for task in tasks if task.task_id not in known)
        attempts = ValidationAttempts(validator, config.rollout.failures, retries=config.rollout.retries)
        async with asyncio.TaskGroup() as workers:
            for _ in range(job.concurrent):
                workers.create_task(_work(attempts, left, found))
    good = counts.pop("", 0)
    summary = {
        "tasks": good + counts.total(),
        "validated": good,
        "quarantined": counts.total(),
        "reasons": dict(counts),
        "undecided": attempts.undecided,
        "without_gold_patch": len(without_gold),
        "without_control": sorted(without_control),
        "seconds": round(time.perf_counter() - started, 1),
    }
    write_atomic(folder.root / "summary.json", json.dumps(summary, indent=2).encode())
    console.print(f"{good} of {summary['tasks']} tasks are good; in quarantine: {dict(counts) or 'none'}")
    if without_gold:
        console.print(f"{len(without_gold)} tasks have no gold patch, so they may be unsolvable")
    if without_control:
        console.print(
            f"{len(without_control)} tasks have no test that can be made wrong (summary.json): cheating cannot be found there. "
            "Set grader.without_control=refuse to leave them out."
        )
    if attempts.undecided:
        console.print(
            f"{attempts.undecided} tasks are undecided because of infrastructure failures (run.log); "
            f"retry them with resume={folder.root}"
        )
    console.print(f"train without them: data.quarantine={folder.root / QUARANTINE}")


async def _work(attempts: ValidationAttempts, tasks: Iterator[Task], found: Callable[[Finding], None]) -> None:
    for task in tasks:
        if (finding := await attempts.finding(task)) is not None:
            found(finding)


def _known(root: Path) -> dict[str, str]:
    """Return the reason for each task id that an earlier run has decided."""
    found: dict[str, str] = {}
    for name in (VALIDATED, QUARANTINE):
        path = root / name
        for line in path.read_text().splitlines() if path.is_file() else ():
            try:
                row = json.loads(line)
                found[row["task_id"]] = row["reason"]
            except (ValueError, KeyError, TypeError):
                continue  # an incomplete line of a killed run
    return found


class Workspaces:
    """Workspaces of tasks, set up as for an agent."""

    def __init__(self, provider: SandboxProvider, timeout_s: float) -> None:
        self._provider = provider
        self._timeout_s = timeout_s

    async def problem(self, task: Task) -> str:
        """Return the problem of the agent's workspace, or an empty string. Raises SandboxError."""
        try:
            labels = {"task": task.task_id, "role": "validation"}
            async with booted(self._provider, task, lifetime_s=3 * self._timeout_s, labels=labels) as sandbox:
                patch = await capture(sandbox, await prepare(sandbox, task, timeout_s=self._timeout_s))
        except (SetupError, GraderError) as error:
            return str(error)
        if patch:
            return f"the work tree changes without an agent: {patch[:DETAIL_SHOWN].decode(errors='replace')}"
        return ""


class Validator:
    """Validator of tasks. Validations may run concurrently."""

    def __init__(self, provider: SandboxProvider, grader: Grader, workspaces: Workspaces, *, passes: int) -> None:
        self._provider = provider
        self._grader = grader
        self._workspaces = workspaces
        self._passes = passes

    async def validate(self, task: Task) -> Finding:
        """Validate the workspace first, then an empty patch, then the gold patch.

        Raises InfraError for a failure that says nothing about the task.
        """
        started = time.perf_counter()
        finding = await self._finding(task)
        seconds = round(time.perf_counter() - started, 2)
        return replace(finding, detail=finding.detail[-DETAIL_SHOWN:], seconds=seconds)

    async def _finding(self, task: Task) -> Finding:
        found = Finding(task_id=task.task_id)
        if detail := await self._workspaces.problem(task):
            return replace(found, reason="setup_failed", detail=detail)
        nothing = await self._graded(task, b"", even_empty=True)
        if nothing.status is VerdictStatus.INFRA_ERROR:
            return replace(found, reason="setup_failed", detail=nothing.log)
        if nothing.status in PASSES_ORIGINALS:
            return replace(found, reason="solved_without_a_change", detail=nothing.log)
        return found if task.gold_patch is None else await self._gold(found, task, task.gold_patch.encode())

    async def _graded(self, task: Task, patch: bytes, *, even_empty: bool = False) -> Verdict:
        """Grade a patch. The verdict is `infra_error` only if the setup of the task failed."""
        verdict = await self._grader.grade(task, patch, self._provider, even_empty=even_empty)
        if verdict.status is VerdictStatus.INFRA_ERROR and not verdict.metadata.get("setup_failed"):
            raise InfraError(verdict.log)
        return verdict

    async def _gold(self, found: Finding, task: Task, patch: bytes) -> Finding:
        passed, detail, has_control = 0, "", True
        for _ in range(self._passes):
            verdict = await self._graded(task, patch)
            if verdict.status is VerdictStatus.INFRA_ERROR:
                return replace(found, reason="setup_failed", detail=verdict.log, gold=passed)
            has_control = has_control and verdict.has_control
            if verdict.status is VerdictStatus.SOLVED:
                passed += 1
            else:
                detail = f"{verdict.status}: {json.dumps(dict(verdict.metadata), default=str)} {verdict.log}"
            if phantoms := verdict.metadata.get("phantom_names"):
                log.warning("task %s names tests that no runner prints as such: %s", task.task_id, phantoms)
        reason = "" if passed == self._passes else "flaky" if passed else "gold_patch_fails"
        return replace(found, reason=reason, detail=detail, gold=passed, has_control=has_control)


class ValidationAttempts:
    """Validation with retries after infrastructure failures. Shared by all workers."""

    def __init__(self, validator: Validator, options: FailuresConfig, *, retries: int) -> None:
        self._validator = validator
        self._options = options
        self._retries = retries
        self._in_a_row = 0
        """Number of undecided tasks since the last decided one."""
        self.undecided = 0

    async def finding(self, task: Task) -> Finding | None:
        """Return the finding on a task, or None if the task stays undecided.

        Raises InfraError after `rollout.failures.outage_after` undecided tasks in a row.
        """
        _, result = await run_attempts(
            0,
            lambda number: self._attempt(task, number),
            pause_s=self._pause_s,
            rest=lambda _, __, pause_s: asyncio.sleep(pause_s),
            again=lambda number, _: number + 1,
        )
        if isinstance(result, Finding):
            self._in_a_row = 0
            return result
        self.undecided += 1
        self._in_a_row += 1
        if self._in_a_row >= self._options.outage_after:
            raise InfraError(
                f"rollout.failures.outage_after: {self._in_a_row} tasks in a row could not be validated. Last error: {result} "
                "Fix the cause, then resume the run; findings so far are kept."
            )
        return None

    async def _attempt(self, task: Task, number: int) -> Finding | InfraError:
        try:
            return await self._validator.validate(task)
        except InfraError as error:
            log.warning("task %s: attempt %d of %d: %s", task.task_id, number + 1, self._retries + 1, error)
            return error

    def _pause_s(self, number: int, result: Finding | InfraError) -> float | None:
        if isinstance(result, Finding) or number == self._retries:
            return None
        return backoff_s(self._options.backoff_s, number + 1)

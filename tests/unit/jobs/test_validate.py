"""What validation finds, with a grader that is told what to say; and the real command over planted faults."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.config.rollout import FailuresConfig
from rl_agent.embedded.toy_source import ToyDataConfig
from rl_agent.errors import InfraError, SandboxError
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.jobs.validate import ValidationAttempts, Validator, Workspaces
from tests.local import calc_task, local_provider, needs_root

if TYPE_CHECKING:
    from rl_agent.tasks.task import Task

ROOT = Path(__file__).parents[3]
SOLVED, FAILED = VerdictStatus.SOLVED, VerdictStatus.FAILED


class Scripted:
    """Answers the empty patch with the first status, and the gold patch with the others in turn."""

    def __init__(self, *statuses: VerdictStatus) -> None:
        self.statuses = list(statuses)
        self.setup_failed = True

    async def grade(self, task: Task, patch: bytes, provider: Any, *, even_empty: bool = False) -> Verdict:
        assert even_empty == (not patch)
        status = self.statuses.pop(0)
        reward = None if status is VerdictStatus.INFRA_ERROR else float(status is SOLVED)
        metadata = {"setup_failed": True} if self.setup_failed else {}
        return Verdict(status=status, reward=reward, log=f"log of {status}", metadata=metadata)


class Fine(Workspaces):
    """Workspaces without a sandbox."""

    def __init__(self, problem: str = "") -> None:
        self._problem = problem

    async def problem(self, task: Task) -> str:
        return self._problem


@pytest.mark.parametrize(
    ("statuses", "reason", "gold"),
    [
        ((FAILED, SOLVED, SOLVED), "", 2),
        ((VerdictStatus.TIMEOUT, SOLVED, SOLVED), "", 2),
        ((SOLVED,), "solved_without_a_change", -1),
        ((VerdictStatus.INFRA_ERROR,), "setup_failed", -1),
        ((FAILED, SOLVED, VerdictStatus.INFRA_ERROR), "setup_failed", 1),
        ((FAILED, FAILED, VerdictStatus.APPLY_FAILED), "gold_patch_fails", 0),
        ((FAILED, SOLVED, FAILED), "flaky", 1),
    ],
)
async def test_a_task_is_good_or_has_the_reason(statuses: tuple[VerdictStatus, ...], reason: str, gold: int) -> None:
    grader = Scripted(*statuses)
    finding = await Validator(None, grader, Fine(), passes=2).validate(calc_task(gold_patch="x"))  # type: ignore[arg-type]
    assert (finding.reason, finding.gold, grader.statuses) == (reason, gold, [])
    assert bool(finding.detail) == bool(reason)


def attempts(grader: Scripted, *, problem: Workspaces | None = None, **changes: Any) -> ValidationAttempts:
    options = FailuresConfig(backoff_s=0.0, **changes)
    return ValidationAttempts(Validator(None, grader, problem or Fine(), passes=2), options, retries=2)  # type: ignore[arg-type]


class Broken(Workspaces):
    """Workspaces of a sandbox provider that is out."""

    def __init__(self) -> None:
        self.asked = 0

    async def problem(self, task: Task) -> str:
        self.asked += 1
        raise SandboxError("503")


async def test_what_infrastructure_breaks_is_tried_again_and_says_nothing_about_the_task() -> None:
    infra = VerdictStatus.INFRA_ERROR
    grader = Scripted(infra, FAILED, SOLVED, infra, FAILED, SOLVED, SOLVED)
    grader.setup_failed = False
    tries = attempts(grader)
    finding = await tries.finding(calc_task(gold_patch="x"))
    assert finding is not None
    assert (finding.reason, finding.gold, grader.statuses, tries.undecided) == ("", 2, [], 0)


async def test_a_task_that_infrastructure_breaks_again_and_again_stays_undecided_and_many_of_them_end_the_job() -> None:
    workspaces = Broken()
    tries = attempts(Scripted(), problem=workspaces, outage_after=3)
    assert [await tries.finding(calc_task()) for _ in range(2)] == [None, None]
    assert (tries.undecided, workspaces.asked) == (2, 6)
    with pytest.raises(InfraError, match=r"outage_after: 3 tasks in a row .*503 Fix"):
        await tries.finding(calc_task())


async def test_a_task_without_gold_patch_is_tried_without_a_change_only() -> None:
    finding = await Validator(None, Scripted(FAILED), Fine(), passes=2).validate(calc_task())  # type: ignore[arg-type]
    assert (finding.reason, finding.gold) == ("", -1)


async def test_a_workspace_that_cannot_be_made_is_found_before_anything_is_graded() -> None:
    finding = await Validator(None, Scripted(), Fine("no git"), passes=2).validate(calc_task())  # type: ignore[arg-type]
    assert (finding.reason, finding.detail) == ("setup_failed", "no git")


@needs_root
async def test_the_agents_own_workspace_is_tried(tmp_path: Path) -> None:
    workspaces = Workspaces(local_provider(tmp_path / "state"), 60)
    assert await workspaces.problem(calc_task()) == ""
    assert "no package" in await workspaces.problem(calc_task(pre_commands=("echo no package; exit 3",)))
    assert "no-such-image" in await workspaces.problem(calc_task(image="no-such-image"))


def test_toy_tasks_bring_gold_patches_and_plant_faults_at_the_front() -> None:
    plain, planted = (ToyDataConfig(planted=number).build().tasks(0) for number in (0, 3))
    for position, (one, other) in enumerate(itertools.islice(zip(plain, planted, strict=True), 6)):
        assert one.task_id == other.task_id
        assert (one == other) is (position >= 3)
        assert one.gold_patch is not None


@needs_root
@pytest.mark.slow
def test_the_command_quarantines_three_planted_faults_with_the_right_reasons(tmp_path: Path) -> None:
    words = ["job=validate", "data=toy", "data.planted=3", "job.tasks=8", f"hydra.run.dir={tmp_path}/run"]
    done = subprocess.run(
        [sys.executable, "-m", "rl_agent", *words], cwd=ROOT, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    quarantine = [json.loads(line) for line in (tmp_path / "run" / "quarantine.jsonl").read_text().splitlines()]
    validated = [json.loads(line) for line in (tmp_path / "run" / "validated.jsonl").read_text().splitlines()]
    assert sorted(row["reason"] for row in quarantine) == [
        "gold_patch_fails",
        "setup_failed",
        "solved_without_a_change",
    ]
    assert "the planted fault" in next(row["detail"] for row in quarantine if row["reason"] == "setup_failed")
    assert len(validated) == 5
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["quarantined"] == 3

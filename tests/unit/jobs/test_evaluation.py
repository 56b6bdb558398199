"""An evaluation beside training: begun when due, one at a time, waited for only after the last step."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.jobs.evaluation import Evaluation, evaluation_metrics
from rl_agent.rollout import records
from rl_agent.rollout.group import AbortReason, Rollout
from tests.unit.config.test_composition import composed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

    from rl_agent.config.schema import Config
    from rl_agent.tasks.task import Task


def rollout(number: int, *, solved: bool | None) -> Rollout:
    status = VerdictStatus.SOLVED if solved else VerdictStatus.FAILED
    return Rollout(
        rollout_id=f"eval-{number}",
        group_id=f"eval-{number}",
        task_id=str(number),
        attempt=0,
        verdict=None if solved is None else Verdict(status=status, reward=float(solved)),
        abort=AbortReason.SANDBOX_ERROR if solved is None else None,
    )


class Driver:
    """Evaluates when it is allowed to; the first half of the tasks is solved."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.asked = 0

    async def evaluate(self, held_out: Sequence[Task]) -> list[tuple[Task, Rollout]]:
        self.asked += 1
        await self.go.wait()
        return [(task, rollout(n, solved=n < len(held_out) / 2)) for n, task in enumerate(held_out)]


def config(**job: Any) -> Any:
    overrides = {"eval_tasks": 4, "eval_tasks_every": 2, "eval_data": "{split: held_out}", "steps": 5} | job
    return composed(*(f"job.{name}={value}" for name, value in overrides.items()))


def evaluation_of(config: Config, folder: Path, driver: Any, tasks: asyncio.TaskGroup) -> Evaluation:
    job: Any = config.job
    return Evaluation(config, job, folder, driver, tasks)


async def test_its_figures_go_with_the_first_step_that_ends_after_it(tmp_path: Path) -> None:
    driver: Any = Driver()
    async with asyncio.TaskGroup() as tasks:
        evaluation = evaluation_of(config(), tmp_path, driver, tasks)
        evaluation.begin(1)
        assert await evaluation.metrics(1) == {}
        evaluation.begin(2)
        assert await evaluation.metrics(2) == {}
        await asyncio.sleep(0)
        assert driver.asked == 1
        driver.go.set()
        for _ in range(5):  # turns of the loop, enough for the evaluation to end: it waits for nothing else
            await asyncio.sleep(0)
        assert (tmp_path / "eval_00002.jsonl").is_file()
        figures = await evaluation.metrics(3)
        assert figures == {
            "eval/weight_version": 2,
            "eval/rollouts": 4,
            "eval/reward_mean": 0.5,
            "eval/solved_rate": 0.5,
        }
        assert await evaluation.metrics(3) == {}
    assert not records.recorded_steps(tmp_path), "no step of training"


async def test_the_last_step_waits_for_its_evaluation(tmp_path: Path) -> None:
    driver: Any = Driver()
    async with asyncio.TaskGroup() as tasks:
        evaluation = evaluation_of(config(), tmp_path, driver, tasks)
        evaluation.begin(5)
        tasks.create_task(asyncio.sleep(0.01)).add_done_callback(lambda _: driver.go.set())
        assert (await evaluation.metrics(5))["eval/weight_version"] == 5


async def test_one_at_a_time(tmp_path: Path) -> None:
    driver: Any = Driver()
    async with asyncio.TaskGroup() as tasks:
        evaluation = evaluation_of(config(), tmp_path, driver, tasks)
        for step in (2, 4):
            evaluation.begin(step)
            await asyncio.sleep(0)
        assert driver.asked == 1
        driver.go.set()


async def ended(evaluation: Evaluation) -> None:
    assert evaluation._running is not None
    await asyncio.wait([evaluation._running])


async def test_the_last_weights_are_evaluated_though_the_evaluation_before_is_not_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driver: Any = Driver()
    async with asyncio.TaskGroup() as tasks:
        evaluation = evaluation_of(config(steps=4), tmp_path, driver, tasks)
        for step in (2, 4):
            evaluation.begin(step)
            await asyncio.sleep(0)
        assert driver.asked == 1
        driver.go.set()
        assert (await evaluation.metrics(4))["eval/weight_version"] == 4
    assert driver.asked == 2
    assert (tmp_path / "eval_00002.jsonl").is_file()
    assert (tmp_path / "eval_00004.jsonl").is_file()
    assert "evaluation of weights number 2" in caplog.text
    assert "eval/solved_rate 0.500" in caplog.text
    assert "not evaluated" not in caplog.text


async def test_an_evaluation_that_ended_during_a_step_does_not_keep_the_next_from_beginning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driver: Any = Driver()
    driver.go.set()
    async with asyncio.TaskGroup() as tasks:
        evaluation = evaluation_of(config(steps=6), tmp_path, driver, tasks)
        evaluation.begin(2)
        await ended(evaluation)
        evaluation.begin(4)
        await ended(evaluation)
        assert (await evaluation.metrics(4))["eval/weight_version"] == 2
        assert (await evaluation.metrics(5))["eval/weight_version"] == 4
        assert await evaluation.metrics(5) == {}
        evaluation.begin(6)
        assert (await evaluation.metrics(6))["eval/weight_version"] == 6
    assert driver.asked == 3
    assert not caplog.text


def test_what_infrastructure_broke_is_no_evidence() -> None:
    figures = evaluation_metrics([rollout(0, solved=True), rollout(1, solved=None)], 7)
    assert figures == {"eval/weight_version": 7, "eval/rollouts": 1, "eval/reward_mean": 1.0, "eval/solved_rate": 1.0}
    assert evaluation_metrics([rollout(1, solved=None)], 7) == {"eval/weight_version": 7, "eval/rollouts": 0}

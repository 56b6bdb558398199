"""The driver hands out whole groups in data order, and runs broken rollouts again."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.rollout.ahead import place, usable
from rl_agent.rollout.driver import Driver
from rl_agent.rollout.group import AbortReason, EpisodeRequest, Rollout
from rl_agent.rollout.scheduler import Scheduler
from rl_agent.tasks.task import EvalCmdSpec, Task
from rl_agent.tokens.segment import Segment, SegmentKind

if TYPE_CHECKING:
    from collections.abc import Iterator


class Numbered:
    """A source whose tasks are called by their position."""

    def tasks(self, seed: int, start: int = 0) -> Iterator[Task]:
        for i in itertools.count(start):
            yield Task(
                task_id=f"{seed}/{i}",
                problem_statement="",
                image="host",
                workdir="/w",
                grader=EvalCmdSpec(eval_cmd="true"),
            )


def solved(request: EpisodeRequest) -> Rollout:
    return Rollout(
        rollout_id=request.rollout_id,
        group_id=request.group_id,
        task_id=request.task.task_id,
        attempt=request.attempt,
        verdict=Verdict(status=VerdictStatus.SOLVED, reward=1.0),
    )


def broken(request: EpisodeRequest) -> Rollout:
    return Rollout(
        rollout_id=request.rollout_id,
        group_id=request.group_id,
        task_id=request.task.task_id,
        attempt=request.attempt,
        verdict=None,
        abort=AbortReason.SANDBOX_ERROR,
    )


def scheduler() -> Scheduler:
    return Scheduler(tasks_per_step=2, group_size=2, max_concurrent=3, max_staleness=0, last_step=2, version=0)


async def test_groups_come_whole_and_in_data_order() -> None:
    async def run(request: EpisodeRequest) -> Rollout:
        await asyncio.sleep(0)
        return solved(request)

    async with asyncio.TaskGroup() as tasks:
        driver = Driver(
            scheduler=scheduler(),
            source=Numbered(),
            seed=7,
            retries=0,
            run_episode=run,
            tasks=tasks,
            on_rollout=lambda *_: None,
        )
        first = await driver.groups(0)
        driver.pushed(1)
        second = await driver.groups(1)
    assert [group.task.task_id for group in (*first, *second)] == ["7/0", "7/1", "7/2", "7/3"]
    assert all(len(group.rollouts) == 2 for group in (*first, *second))
    names = [rollout.rollout_id for group in (*first, *second) for rollout in group.rollouts]
    assert len(set(names)) == 8


async def test_infrastructure_is_tried_again_and_then_given_up_without_a_reward() -> None:
    attempts: list[tuple[str, int]] = []

    async def run(request: EpisodeRequest) -> Rollout:
        attempts.append((request.rollout_id, request.attempt))
        return broken(request) if request.rollout_id == "00000-000-00" else solved(request)

    async with asyncio.TaskGroup() as tasks:
        driver = Driver(
            scheduler=scheduler(),
            source=Numbered(),
            seed=0,
            retries=2,
            run_episode=run,
            tasks=tasks,
            on_rollout=lambda *_: None,
        )
        groups = await driver.groups(0)
    assert [attempt for name, attempt in attempts if name == "00000-000-00"] == [0, 1, 2]
    lost = groups[0].rollouts[0]
    assert lost.status == "sandbox_error"
    assert lost.reward is None


async def test_an_own_bug_in_an_episode_ends_the_run() -> None:
    async def run(request: EpisodeRequest) -> Rollout:
        raise ZeroDivisionError(request.rollout_id)

    async def drive() -> None:
        async with asyncio.TaskGroup() as tasks:
            driver = Driver(
                scheduler=scheduler(),
                source=Numbered(),
                seed=0,
                retries=0,
                run_episode=run,
                tasks=tasks,
                on_rollout=lambda *_: None,
            )
            await driver.groups(0)

    with pytest.raises(ExceptionGroup) as raised:
        await drive()
    assert raised.group_contains(ZeroDivisionError)


async def test_what_a_killed_run_had_finished_ahead_is_not_run_again() -> None:
    """Staleness 1: step 1 may run while step 0 trains. The second run starts at step 1 with what the first had of it."""
    ran: list[str] = []

    async def run(request: EpisodeRequest) -> Rollout:
        ran.append(request.rollout_id)
        await asyncio.sleep(0)
        return solved(request)

    kept = usable(
        [solved(EpisodeRequest(task=task, group_id=name[:9], rollout_id=name)) for name, task in AHEAD],
        Numbered(),
        seed=7,
        first_step=1,
        tasks_per_step=2,
        group_size=2,
        max_staleness=1,
    )
    assert [rollout.rollout_id for rollout in kept] == ["00001-000-01", "00001-001-00"]
    async with asyncio.TaskGroup() as tasks:
        driver = Driver(
            scheduler=Scheduler(
                tasks_per_step=2,
                group_size=2,
                max_concurrent=8,
                max_staleness=1,
                last_step=3,
                version=1,
                done=frozenset(place(rollout.rollout_id) for rollout in kept),
            ),
            source=Numbered(),
            seed=7,
            retries=0,
            run_episode=run,
            tasks=tasks,
            on_rollout=lambda *_: None,
            ahead=kept,
        )
        groups = await driver.groups(1)
        assert [rollout.rollout_id for rollout in driver.ahead()] == sorted(set(ran) - {"00001-000-00", "00001-001-01"})
    assert [[rollout.rollout_id for rollout in group.rollouts] for group in groups] == [
        ["00001-000-00", "00001-000-01"],
        ["00001-001-00", "00001-001-01"],
    ]
    assert not set(ran) & {rollout.rollout_id for rollout in kept}


def test_rollouts_that_no_longer_fit_are_run_again() -> None:
    def kept(rollout: Rollout, **changed: int) -> bool:
        values = {"seed": 7, "first_step": 1, "tasks_per_step": 2, "group_size": 2, "max_staleness": 1}
        return bool(usable([rollout], Numbered(), **(values | changed)))

    name, task = AHEAD[1]
    good = solved(EpisodeRequest(task=task, group_id=name[:9], rollout_id=name))
    assert kept(good)
    assert not kept(good, seed=8)  # another task stands there
    assert not kept(good, first_step=2)
    assert not kept(good, group_size=1)
    assert not kept(broken(EpisodeRequest(task=task, group_id=name[:9], rollout_id=name)))
    mask = np.array([False, True])
    old = Segment(
        kind=SegmentKind.MAIN,
        tokens=np.zeros(2, dtype=np.int32),
        loss_mask=mask,
        rollout_logprobs=np.zeros(2, dtype=np.float32),
        weight_versions=np.array([-1, 0], dtype=np.int32),
    )
    assert kept(replace(good, segments=(old,)))
    assert not kept(replace(good, segments=(old,)), max_staleness=0)


AHEAD = [
    (name, next(Numbered().tasks(7, position)))
    for name, position in (("00000-001-00", 1), ("00001-000-01", 2), ("00001-001-00", 3), ("00001-001-03", 3))
]
"""Of the step before, two of step 1, and one whose group has become smaller."""

"""The driver hands out whole groups in data order, and runs broken rollouts again."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rl_agent.config.rollout import FailuresConfig
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.rollout.buffer import Buffer
from rl_agent.rollout.driver import Driver, Records
from rl_agent.rollout.failures import FailurePolicy
from rl_agent.rollout.group import AbortReason, EpisodeRequest, Rollout, Slot
from rl_agent.rollout.ledger import RolloutLedger
from rl_agent.rollout.resume import Shape, restore
from rl_agent.rollout.scheduler import Scheduler
from rl_agent.tasks.task import EvalCmdSpec, Task
from rl_agent.tokens.segment import Segment, SegmentKind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path


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


SIZES = {"tasks_per_step": 2, "group_size": 2, "max_concurrent": 3, "max_staleness": 0, "last_step": 2, "version": 0}
FAST = {"backoff_s": 0.001, "outage_probe_s": 0.01, "outage_after": 3}


@asynccontextmanager
async def driving(
    folder: Path, run: Callable[[EpisodeRequest], Awaitable[Rollout]], *, retries: int = 0, **options: Any
) -> AsyncIterator[Driver]:
    """A driver over a real ledger and buffer, resumed from what the folder holds at step `version`."""
    sizes = SIZES | {name: options.pop(name) for name in (*SIZES, "extra_members", "extra_tasks") if name in options}
    failures = FailuresConfig(**FAST | options.pop("failures", {}))
    on_rollout = options.pop("on_rollout", lambda _: None)
    ledger, buffer = RolloutLedger(folder / "ledger.jsonl"), Buffer(folder / "buffer")
    shape = Shape(
        first_step=sizes["version"],
        tasks_per_step=sizes["tasks_per_step"],
        members=sizes["group_size"] + sizes.get("extra_members", 0),
        max_staleness=sizes["max_staleness"],
    )
    restored = restore(ledger, buffer, Numbered(), seed=7, shape=shape)
    try:
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            driver = Driver(
                scheduler=Scheduler(**sizes, history=restored.history),
                source=Numbered(),
                seed=7,
                failures=FailurePolicy(failures, retries=retries),
                records=Records(ledger=ledger, buffer=buffer, on_rollout=on_rollout),
                run_episode=run,
                tasks=tasks,
                done=restored.rollouts,
                **options,
            )
            yield driver
            driver.close()
    finally:
        ledger.state.balance()
        ledger.close()


async def at_once(request: EpisodeRequest) -> Rollout:
    await asyncio.sleep(0)
    return solved(request)


async def test_groups_come_whole_and_in_data_order(tmp_path: Path) -> None:
    async with driving(tmp_path, at_once) as driver:
        first = await driver.groups(0)
        driver.pushed(1)
        second = await driver.groups(1)
    assert [group.task.task_id for group in (*first, *second)] == ["7/0", "7/1", "7/2", "7/3"]
    names = [rollout.rollout_id for group in (*first, *second) for rollout in group.rollouts]
    assert names == [Slot(position=position, member=member).rollout_id for position in range(4) for member in range(2)]


async def test_infrastructure_is_tried_again_and_then_given_up_without_a_reward(tmp_path: Path) -> None:
    attempts: list[tuple[str, int]] = []

    async def run(request: EpisodeRequest) -> Rollout:
        attempts.append((request.rollout_id, request.attempt))
        return broken(request) if request.rollout_id == "000000-00" else solved(request)

    async with driving(tmp_path, run, retries=2) as driver:
        groups = await driver.groups(0)
    assert [attempt for name, attempt in attempts if name == "000000-00"] == [0, 1, 2]
    lost = groups[0].rollouts[0]
    assert lost.status == "sandbox_error"
    assert lost.reward is None


async def test_an_outage_costs_time_and_no_rollout(tmp_path: Path) -> None:
    calls = 0

    async def run(request: EpisodeRequest) -> Rollout:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        return broken(request) if calls <= 40 else solved(request)

    async with driving(tmp_path, run, retries=1, max_concurrent=8) as driver:
        paced = asyncio.get_running_loop().create_task(_pace(driver))
        groups = await driver.groups(0)
        paced.cancel()
        assert driver.metrics()["failures/sandbox_outage_seconds"] > 0.0
    assert all(rollout.reward == 1.0 for group in groups for rollout in group.rollouts)


async def _pace(driver: Driver) -> None:
    while True:
        await asyncio.sleep(0.005)
        driver.limit(None)


async def test_when_only_grading_failed_the_agent_does_not_run_again(tmp_path: Path) -> None:
    seen: list[Rollout | None] = []

    async def run(request: EpisodeRequest) -> Rollout:
        seen.append(request.ungraded)
        if request.ungraded is None:
            ungraded = Verdict(status=VerdictStatus.INFRA_ERROR, reward=None)
            return replace(solved(request), verdict=ungraded, patch=b"work")
        return replace(solved(request), patch=request.ungraded.patch)

    async with driving(tmp_path, run, retries=1, tasks_per_step=1, group_size=1) as driver:
        ((group,),) = [await driver.groups(0)]
    assert [left.patch if left else None for left in seen] == [None, b"work"]
    assert group.rollouts[0].patch == b"work"


async def test_an_own_bug_breaks_its_rollout_only_and_many_end_the_run(tmp_path: Path) -> None:
    async def run(request: EpisodeRequest) -> Rollout:
        if request.rollout_id.endswith("00"):
            raise ZeroDivisionError(request.rollout_id)
        return solved(request)

    async with driving(tmp_path / "few", run) as driver:
        groups = await driver.groups(0)
    assert [[rollout.status for rollout in group.rollouts] for group in groups] == [["bug", "solved"]] * 2
    with pytest.raises(ExceptionGroup) as raised:
        async with driving(tmp_path / "many", run, failures={"max_bugs": 1}) as driver:
            await driver.groups(0)
    assert raised.group_contains(ZeroDivisionError)


async def test_groups_with_nothing_to_compare_are_replaced_by_the_next_tasks(tmp_path: Path) -> None:
    def drop(rollouts: list[Rollout]) -> str | None:
        return "zero_variance" if rollouts[0].task_id in ("7/0", "7/2") else None

    async with driving(tmp_path, at_once, drop=drop) as driver:
        groups = await driver.groups(0)
        assert driver.metrics()["scheduler/filtered_groups"] == 2.0
    assert [group.task.task_id for group in groups] == ["7/1", "7/3"]
    assert not list((tmp_path / "buffer").glob("000000-*"))


async def test_a_group_that_is_complete_ends_the_retries_of_its_rollouts(tmp_path: Path) -> None:
    async def run(request: EpisodeRequest) -> Rollout:
        return broken(request) if request.slot.member == 0 else solved(request)

    options: dict[str, Any] = {"extra_members": 1, "max_concurrent": 9, "failures": {"backoff_s": 30.0}}
    async with driving(tmp_path, run, retries=1, **options) as driver:
        groups = await driver.groups(0)
        await asyncio.sleep(0.01)
        waiting = [task.get_name() for task in asyncio.all_tasks() if "episode" in task.get_name()]
    assert [[rollout.rollout_id[-2:] for rollout in group.rollouts] for group in groups] == [["01", "02"]] * 2
    assert [name for name in waiting if "position=0" in name or "position=1" in name] == []


async def test_rollouts_that_nobody_needs_are_cancelled(tmp_path: Path) -> None:
    cancelled: list[str] = []

    async def run(request: EpisodeRequest) -> Rollout:
        if request.rollout_id.endswith("01"):
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(request.rollout_id)
        return solved(request)

    async with driving(tmp_path, run, extra_members=1, max_concurrent=9) as driver:
        groups = await driver.groups(0)
    assert sorted(cancelled) == [
        "000000-01",
        "000001-01",
    ]  # groups are complete in any order: their records are written by threads
    assert [[rollout.rollout_id[-2:] for rollout in group.rollouts] for group in groups] == [["00", "02"]] * 2


async def test_an_evaluation_runs_beside_training_and_before_what_waits(tmp_path: Path) -> None:
    order: list[str] = []

    async def run(request: EpisodeRequest) -> Rollout:
        order.append(request.rollout_id)
        return await at_once(request)

    held_out = [next(Numbered().tasks(99, position)) for position in range(2)]
    async with driving(tmp_path, run, max_concurrent=1) as driver, asyncio.TaskGroup() as both:
        evaluation = both.create_task(driver.evaluate(held_out))
        groups = both.create_task(driver.groups(0))
    assert order[:2] == ["eval00000-0000", "eval00000-0001"]
    assert [task.task_id for task, rollout in evaluation.result() if rollout.reward == 1.0] == ["99/0", "99/1"]
    assert len(groups.result()) == 2


async def test_what_a_killed_run_had_finished_is_not_run_again(tmp_path: Path) -> None:
    """Staleness 1: step 1 may run while step 0 trains. The run is killed in step 1 with one rollout of it unfinished."""
    hold, all_but_one = asyncio.Event(), asyncio.Event()
    finished: list[Rollout] = []

    def on_rollout(rollout: Rollout) -> None:
        finished.append(rollout)
        if len(finished) == 7:
            all_but_one.set()

    async def first(request: EpisodeRequest) -> Rollout:
        if request.rollout_id == "000003-01":
            await hold.wait()
        return await at_once(request)

    async with driving(tmp_path, first, max_staleness=1, max_concurrent=9, on_rollout=on_rollout) as driver:
        await driver.groups(0)
        driver.pushed(1)
        driver.saved(1)
        await all_but_one.wait()
    ran: list[str] = []

    async def second(request: EpisodeRequest) -> Rollout:
        ran.append(request.rollout_id)
        return await at_once(request)

    async with driving(tmp_path, second, max_staleness=1, version=1) as driver:
        groups = await driver.groups(1)
    assert ran == ["000003-01"]
    assert [[rollout.rollout_id for rollout in group.rollouts] for group in groups] == [
        ["000002-00", "000002-01"],
        ["000003-00", "000003-01"],
    ]


async def test_steps_after_the_last_checkpoint_train_again_on_the_same_rollouts(tmp_path: Path) -> None:
    async with driving(tmp_path, at_once) as driver:
        before = await driver.groups(0)

    async def never(request: EpisodeRequest) -> Rollout:
        raise AssertionError(request.rollout_id)

    async with driving(tmp_path, never, last_step=1) as driver:
        assert await driver.groups(0) == before


async def test_rollouts_that_no_longer_fit_are_run_again(tmp_path: Path) -> None:
    def sampled(request: EpisodeRequest) -> Rollout:
        old = Segment(
            kind=SegmentKind.MAIN,
            tokens=np.zeros(2, dtype=np.int32),
            loss_mask=np.array([False, True]),
            rollout_logprobs=np.zeros(2, dtype=np.float32),
            weight_versions=np.array([-1, 0], dtype=np.int32),
        )
        return replace(solved(request), segments=(old,))

    async def run(request: EpisodeRequest) -> Rollout:
        return sampled(request)

    async with driving(tmp_path, run, max_staleness=1, max_concurrent=9) as driver:
        for step in range(2):
            await driver.groups(step)
            driver.pushed(step + 1)
    ledger, buffer = RolloutLedger(tmp_path / "ledger.jsonl"), Buffer(tmp_path / "buffer")

    def kept(**changed: int) -> list[str]:
        shape = Shape(**{"first_step": 0, "tasks_per_step": 2, "members": 2, "max_staleness": 1} | changed)

        class KeepAll(Buffer):
            def keep_only(self, rollout_ids: object) -> None:
                """What is left out here is asked for again below."""

        found = restore(ledger, KeepAll(tmp_path / "buffer"), Numbered(), seed=changed.pop("seed", 7), shape=shape)
        return [slot.rollout_id for slot in found.rollouts]

    assert buffer.load("000000-00") is not None
    assert kept() == [Slot(position=position, member=member).rollout_id for position in range(4) for member in range(2)]
    assert kept(members=1) == [Slot(position=position, member=0).rollout_id for position in range(4)]
    assert kept(max_staleness=0) == [
        Slot(position=position, member=member).rollout_id for position in range(2) for member in range(2)
    ]
    (tmp_path / "buffer" / "000001-01.safetensors").write_bytes(b"torn")
    assert "000001-01" not in kept()
    ledger.close()


async def test_two_hundred_steps_leave_no_tasks_and_no_rollouts_behind(tmp_path: Path) -> None:
    async def run(request: EpisodeRequest) -> Rollout:
        return broken(request) if request.rollout_id.endswith("3-01") and not request.attempt else solved(request)

    def drop(rollouts: list[Rollout]) -> str | None:
        return "zero_variance" if rollouts[0].task_id.endswith("7") else None

    kept: list[tuple[int, int]] = []
    async with driving(
        tmp_path, run, retries=1, last_step=200, max_staleness=2, max_concurrent=12, extra_members=1, drop=drop
    ) as driver:
        for step in range(200):
            await driver.groups(step)
            driver.pushed(step + 1)
            driver.saved(step + 1)
            kept.append((len(asyncio.all_tasks()), len(list((tmp_path / "buffer").iterdir()))))
    await (
        asyncio.get_running_loop().shutdown_default_executor()
    )  # what was cancelled while it was written is removed then
    await asyncio.sleep(0)
    assert max(tasks for tasks, _ in kept) <= 20
    assert max(files for _, files in kept) <= 2 * 2 * 3 * 3, (
        "two files a rollout, three a group, two groups, three steps"
    )
    assert not list((tmp_path / "buffer").iterdir())

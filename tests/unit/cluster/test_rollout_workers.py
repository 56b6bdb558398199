"""Rollout workers, with processes of which everything is known."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rl_agent.cluster.calls import LostActorError
from rl_agent.cluster.rollout_workers import RolloutWorkers
from rl_agent.cluster.run_state import RestartLimit, RunState
from rl_agent.engine.replicas import ReplicaSet
from rl_agent.errors import ConfigError, InfraError
from rl_agent.rollout.group import AbortReason, EpisodeRequest, Rollout, Slot
from rl_agent.tasks.task import EvalCmdSpec, Task

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TASK = Task(task_id="t", problem_statement="", image="host", workdir="/w", grader=EvalCmdSpec(eval_cmd="true"))


def request(member: int = 0) -> EpisodeRequest:
    return EpisodeRequest(task=TASK, slot=Slot(position=0, member=member, attempt=1))


class Worker:
    """One life of one worker. Episodes run until `release` is set."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.dead = asyncio.Event()
        self.release = asyncio.Event()
        self.stopped = asyncio.Event()
        self.running = 0
        self.told: list[ReplicaSet] = []

    async def call(self, method: str, *arguments: Any, ends: bool = False) -> Any:
        work = asyncio.ensure_future(getattr(self, method)(*arguments))
        death = asyncio.ensure_future(self.dead.wait())
        try:
            await asyncio.wait([work, death], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
        finally:
            death.cancel()
            work.cancel()
        raise LostActorError(f"worker {self.number} is gone")

    def kill(self) -> None:
        self.dead.set()

    async def serve(self, replicas: ReplicaSet, model_folder: Path) -> None:
        self.told.append(replicas)
        if self.world.misconfigured:
            raise ConfigError("the CLI was not fetched")
        await self.stopped.wait()

    async def ready(self) -> None:
        await self.world.room.wait()
        await asyncio.sleep(0.01)

    async def renew(self, replicas: ReplicaSet) -> None:
        self.told.append(replicas)

    async def run(self, asked: EpisodeRequest) -> Rollout:
        self.running += 1
        self.world.most[self.number] = max(self.world.most[self.number], self.running)
        await self.release.wait()
        self.running -= 1
        return Rollout(
            rollout_id=asked.rollout_id,
            group_id="g",
            task_id="t",
            attempt=asked.attempt,
            verdict=None,
            abort=AbortReason.EMPTY_SESSION,
        )

    async def stop(self) -> None:
        await self.world.room.wait()
        self.stopped.set()


class World:
    def __init__(self, *, workers: int, most: int = 3) -> None:
        self.lives: dict[int, list[Worker]] = {n: [] for n in range(workers)}
        self.most: Counter[int] = Counter()
        self.misconfigured = False
        self.room = asyncio.Event()
        """Whether there is a node for a worker that starts."""
        self.room.set()
        self.run_state = RunState()
        self.replicas = ReplicaSet(addresses=("a",))
        cluster = SimpleNamespace(max_restarts=most, restart_window_s=600.0, rollout_workers=workers)
        self.workers = RolloutWorkers(
            cast("Any", SimpleNamespace(cluster=cluster)),
            make=self.make,
            replicas=lambda: self.replicas,
            run_state=self.run_state,
            model_folder=Path("model"),
        )

    def make(self, number: int) -> Worker:
        self.lives[number].append(Worker(self, number))
        return self.lives[number][-1]


@asynccontextmanager
async def up(world: World) -> AsyncIterator[RolloutWorkers]:
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(world.workers.supervise())
        await world.workers.all_ready()
        yield world.workers
        await world.workers.stop()


async def test_episodes_spread_evenly() -> None:
    world = World(workers=3)
    async with up(world) as workers, asyncio.TaskGroup() as tasks:
        for n in range(9):
            tasks.create_task(workers.run(request(n)))
        await asyncio.sleep(0.05)
        for lives in world.lives.values():
            lives[0].release.set()
    assert world.most == {0: 3, 1: 3, 2: 3}


async def test_episodes_of_a_lost_worker_are_aborted_and_the_next_ones_run_on_the_one_that_replaces_it() -> None:
    world = World(workers=1)
    async with up(world) as workers:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(workers.run(request(n))) for n in range(3)]
            await asyncio.sleep(0.02)
            world.lives[0][0].kill()
        for n, task in enumerate(running):
            rollout = task.result()
            assert (rollout.rollout_id, rollout.attempt, rollout.abort) == (
                request(n).rollout_id,
                1,
                AbortReason.WORKER_LOST,
            )
            assert rollout.reward is None
            assert "worker 0 is gone" in rollout.detail
        async with asyncio.TaskGroup() as tasks:
            again = tasks.create_task(workers.run(request(3)))
            await asyncio.sleep(0.05)
            world.lives[0][1].release.set()
        assert again.result().abort is AbortReason.EMPTY_SESSION
        assert workers.restarts == 1


async def test_a_cancelled_episode_is_counted_out() -> None:
    world = World(workers=1)
    async with up(world) as workers:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(workers.run(request()))
            await asyncio.sleep(0.02)
            running.cancel()
        assert workers._workers[0].episodes == 0


async def test_a_worker_that_is_not_up_does_not_hold_up_the_end() -> None:
    world = World(workers=2)
    async with up(world):
        world.room.clear()
        world.lives[0][0].kill()
        await asyncio.sleep(0.05)
        assert len(world.lives[0]) == 2  # it is started again, for which there is no room
        ending = asyncio.create_task(world.workers.stop())
        await asyncio.sleep(0.05)
        assert world.lives[0][1].dead.is_set()
        assert not ending.done()  # the other one is asked
        world.room.set()
        await ending
        assert world.lives[1][0].stopped.is_set()


async def test_workers_are_told_where_the_policy_servers_are() -> None:
    world = World(workers=2)
    async with up(world):
        world.replicas = elsewhere = ReplicaSet(addresses=("b",))
        world.run_state.changed()
        await asyncio.sleep(0.02)
        for lives in world.lives.values():
            assert lives[0].told == [ReplicaSet(addresses=("a",)), elsewhere]
        world.lives[0][0].kill()
        await asyncio.sleep(0.05)
        assert world.lives[0][1].told == [elsewhere]


async def test_a_worker_that_is_lost_too_often_ends_the_run_with_a_report() -> None:
    world = World(workers=1, most=1)
    async with up(world) as workers:
        world.lives[0][0].kill()
        await asyncio.sleep(0.05)
        world.lives[0][1].kill()
        await asyncio.sleep(0.05)
        with pytest.raises(InfraError, match=r"rollout worker 0 was lost 2 times within 600 s"):
            await workers.run(request())


async def test_what_cannot_work_is_not_tried_again() -> None:
    world = World(workers=1)
    world.misconfigured = True
    with pytest.raises(ExceptionGroup) as raised:
        await world.workers.supervise()
    assert raised.group_contains(ConfigError, match="not fetched")
    assert len(world.lives[0]) == 1


def test_restarts_are_counted_within_a_moving_window() -> None:
    limit = RestartLimit(2, 10.0)
    assert [limit.allows(now) for now in (0.0, 5.0, 9.0, 10.5, 11.0, 15.5)] == [True, True, False, True, False, True]

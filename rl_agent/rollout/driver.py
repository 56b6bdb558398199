"""Drives the scheduler: starts episodes, runs broken ones again, and hands out whole steps in order."""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import TYPE_CHECKING

from rl_agent.rollout.ahead import place
from rl_agent.rollout.group import RETRIED, EpisodeRequest, Group
from rl_agent.rollout.scheduler import Slot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from rl_agent.rollout.group import Rollout
    from rl_agent.rollout.scheduler import Scheduler
    from rl_agent.tasks.source import TaskSource
    from rl_agent.tasks.task import Task

log = logging.getLogger(__name__)


class Driver:
    """Use as `async with asyncio.TaskGroup() as tasks: driver = Driver(..., tasks=tasks)`: episodes live in that group.

    A group that is cancelled (the run ends, an own bug) cancels every running episode.
    """

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        source: TaskSource,
        seed: int,
        retries: int,
        run_episode: Callable[[EpisodeRequest], Awaitable[Rollout]],
        tasks: asyncio.TaskGroup,
        on_rollout: Callable[[int, Rollout], None],
        ahead: Sequence[Rollout] = (),
    ) -> None:
        """`ahead`: rollouts that a run before has finished, and the scheduler's `done` names."""
        self._scheduler = scheduler
        self._source = source
        self._seed = seed
        self._retries = retries
        self._run_episode = run_episode
        self._tasks = tasks
        self._on_rollout = on_rollout
        self._step_tasks: dict[int, Sequence[Task]] = {}
        self._done: dict[Slot, Rollout] = {}
        for rollout in ahead:
            step, task, member = place(rollout.rollout_id)
            self._done[Slot(step=step, task=task, member=member, attempt=rollout.attempt)] = rollout
            on_rollout(step, rollout)
        self._changed = asyncio.Event()

    async def groups(self, step: int) -> list[Group]:
        """The groups of a step, once every rollout of it is over. Steps are asked for in order."""
        self.admit()
        while not self._scheduler.complete(step):
            self._changed.clear()
            await self._changed.wait()
        tasks = self._tasks_of(step)
        del self._step_tasks[step]
        return [
            Group(
                group_id=_group_id(step, position),
                task=task,
                rollouts=tuple(self._take(step, position)),
            )
            for position, task in enumerate(tasks)
        ]

    def pushed(self, version: int) -> None:
        """New weights are in the engine; more rollouts may start."""
        self._scheduler.pushed(version)
        self.admit()

    def admit(self) -> None:
        """Start what may start."""
        for slot in self._scheduler.admit():
            self._tasks.create_task(self._run(slot), name=f"episode {slot}")

    async def _run(self, slot: Slot) -> None:
        rollout = await self._run_episode(self._request(slot))
        if rollout.abort in RETRIED and slot.attempt < self._retries:
            log.warning(
                "%s: %s (%s); attempt %d of %d",
                rollout.rollout_id,
                rollout.abort,
                rollout.detail,
                slot.attempt + 1,
                self._retries,
            )
            self._scheduler.retry(slot)
        else:
            self._done[slot] = rollout
            self._scheduler.finished(slot)
            self._on_rollout(slot.step, rollout)
        self._changed.set()
        self.admit()

    def ahead(self) -> list[Rollout]:
        """Finished rollouts that no step has taken yet, in data order."""
        return [self._done[slot] for slot in sorted(self._done)]

    def _tasks_of(self, step: int) -> Sequence[Task]:
        if step not in self._step_tasks:
            count = self._scheduler.tasks_per_step
            self._step_tasks[step] = list(itertools.islice(self._source.tasks(self._seed, step * count), count))
        return self._step_tasks[step]

    def _request(self, slot: Slot) -> EpisodeRequest:
        group_id = _group_id(slot.step, slot.task)
        return EpisodeRequest(
            task=self._tasks_of(slot.step)[slot.task],
            group_id=group_id,
            rollout_id=f"{group_id}-{slot.member:02d}",
            attempt=slot.attempt,
        )

    def _take(self, step: int, position: int) -> list[Rollout]:
        mine = sorted(slot for slot in self._done if slot.step == step and slot.task == position)
        return [self._done.pop(slot) for slot in mine]


def _group_id(step: int, position: int) -> str:
    return f"{step:05d}-{position:03d}"

"""The loop of jobs that sample and do not train: every rollout of a plan once, written down as it ends."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from rl_agent.cluster.bring_up import cluster
from rl_agent.config.load import as_plain
from rl_agent.errors import ConfigError
from rl_agent.jobs.checkpoints import policy_of
from rl_agent.jobs.places import Place, Places, Recorded, tasks_of
from rl_agent.jobs.preflight import require_startable, require_weights
from rl_agent.rollout.failures import FailurePolicy
from rl_agent.rollout.group import EpisodeRequest, Group, Rollout, group_id, rollout_id
from rl_agent.rollout.metrics import rollout_metrics
from rl_agent.rollout.scheduler import Slot
from rl_agent.tasks.source import TaskSource
from rl_agent.tracking.console import Console
from rl_agent.tracking.tracker import Tracker
from rl_agent.weights.base import WeightSender

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from rl_agent.config.schema import Config
    from rl_agent.jobs.checkpoints import Policy
    from rl_agent.run_folder import RunFolder
    from rl_agent.tasks.task import Task

log = logging.getLogger(__name__)

OUTAGE_POLL_S: Final = 1.0
"""Between looks whether an outage lets one more rollout try."""


@dataclass(slots=True, kw_only=True)
class Sampling:
    """One job's rollouts. `run` returns when every one of them is over."""

    recorded: Recorded
    tasks: Iterator[Task]
    """All of them, in order."""
    run_episode: Callable[[EpisodeRequest], Awaitable[Rollout]]
    on_rollout: Callable[[Rollout], None]
    on_file: Callable[[int, list[Group]], None]
    """Number and groups of a file that was written."""
    version: int
    """Number of the weights that sample, where it is known."""
    max_concurrent: int
    failures: FailurePolicy
    greedy: bool = False
    _open: dict[int, list[Task]] = field(default_factory=dict)
    """File -> its tasks so far."""

    async def run(self) -> None:
        """Raises ConfigError if the data is not what a run before has recorded."""
        for rollout in self.recorded.done.values():
            self.on_rollout(rollout)
        missing = self._missing()
        async with asyncio.TaskGroup() as workers:
            for _ in range(self.max_concurrent):
                workers.create_task(self._work(missing))
        self._close()

    def _missing(self) -> Iterator[tuple[Place, Task]]:
        """What is to be run, in order."""
        plan, recorded = self.recorded.plan, self.recorded
        first = recorded.next_file
        for position, task in enumerate(self.tasks):
            file = plan.file(position)
            if file < first:
                continue
            self._open.setdefault(file, []).append(task)
            for place in (Place(position, member) for member in range(plan.members)):
                known = recorded.done.get(place)
                if known is None:
                    yield place, task
                elif known.task_id != task.task_id:
                    raise ConfigError(
                        f"rollout {known.rollout_id} was recorded for task {known.task_id}, but now that place is of task {task.task_id}. "
                        "Remedy: resume with the data, the seed and the numbers that the run was started with"
                    )

    async def _work(self, missing: Iterator[tuple[Place, Task]]) -> None:
        for place, task in missing:
            rollout = _of_version(await self._attempts(place, task), self.version)
            self.recorded.keep(rollout)
            self.on_rollout(rollout)
            self._close()

    async def _attempts(self, place: Place, task: Task) -> Rollout:
        """What infrastructure broke is tried again, as in training: it says nothing about the policy."""
        slot, ungraded = Slot(position=place.position, member=place.member), None
        while True:
            await self._outage()
            self.failures.started()
            request = _request(slot, task, greedy=self.greedy, ungraded=ungraded)
            rollout = await self.failures.contained(self.run_episode, request)
            pause = self.failures.observe(slot, rollout, _now())
            if pause is None:
                return rollout
            log.warning("%s: %s (%s); again in %.0f s", rollout.rollout_id, rollout.status, rollout.detail, pause)
            ungraded = None if rollout.verdict is None else rollout  # with one, only grading failed: the work is done
            slot = replace(slot, attempt=slot.attempt + 1)
            await asyncio.sleep(pause)

    async def _outage(self) -> None:
        """Wait while an outage lasts, but for the few that try whether it is over. Raises InfraError for one that does not end."""
        while self.failures.limit(_now()) == 0:  # noqa: ASYNC110 (time alone lets the next one try)
            await asyncio.sleep(OUTAGE_POLL_S)

    def _close(self) -> None:
        """Write every file that is complete now, in order."""
        recorded = self.recorded
        while (file := recorded.next_file) in self._open:
            whole = len(self._open[file]) * recorded.plan.members == len(recorded.plan.places(file))
            groups = recorded.close(self._open[file]) if whole else None
            if groups is None:
                return
            del self._open[file]
            self.on_file(file, groups)


async def sample(
    config: Config,
    folder: RunFolder,
    *,
    limit: int | None,
    members: int,
    greedy: bool = False,
    finish: Callable[[Policy, Tracker, Console], None],
) -> None:
    """Bring up engine and workers, without a trainer; run what is missing; `finish` tells the figures.

    `limit`: tasks, see `places.tasks_of`; `members`: rollouts of each.
    """
    source: TaskSource = config.data.build()
    count, tasks = tasks_of(source, config, limit)
    plan = Places(tasks=count, members=members, per_file=config.rollout.tasks_per_step)
    recorded = Recorded(folder.rollouts, folder.buffer, plan)
    recorded.load()
    folder.truncate_metrics(recorded.next_file - 1)
    with (
        Console(
            steps=plan.files,
            first_step=recorded.next_file - 1,
            rollouts_per_step=plan.per_file * members,
            live=config.tracking.console,
        ) as console,
        Tracker(config.tracking, folder, as_plain(config), run_id=folder.root.name) as tracker,
    ):
        console.say(f"run folder: {folder.root}")
        policy = await policy_of(config, folder)
        require_weights(policy.folder)
        if recorded.next_file <= plan.files:
            await require_startable(config, next(source.tasks(config.seed)))
            if recorded.next_file > 1 or recorded.done:
                before = len(recorded.done) + sum(len(plan.places(file)) for file in range(1, recorded.next_file))
                console.say(f"resuming: {before} of {count * members} rollouts are recorded")
            console.say(
                f"sampling {count} tasks x {members} rollouts with {policy.name} (weights number {policy.version})"
            )
            await _sample(config, folder, policy, recorded, tasks, greedy, console, tracker)
        finish(policy, tracker, console)


async def _sample(
    config: Config,
    folder: RunFolder,
    policy: Policy,
    recorded: Recorded,
    tasks: Iterator[Task],
    greedy: bool,
    console: Console,
    tracker: Tracker,
) -> None:
    started = time.perf_counter()

    def on_file(number: int, groups: list[Group]) -> None:
        nonlocal started
        now = time.perf_counter()
        metrics = rollout_metrics(groups, policy.version) | {"time/rollout": now - started}
        started = now
        metrics["tokens/per_second"] = metrics["tokens/sampled"] / metrics["time/rollout"]
        tracker.log(number, metrics)
        tracker.rollouts(number, groups)
        console.step(number, metrics)

    backend = config.weights.build().backend
    async with cluster(config, folder, policy.folder, backend, trains=False) as processes, asyncio.TaskGroup() as alive:
        watch = alive.create_task(processes.watch())
        await Sampling(
            recorded=recorded,
            tasks=tasks,
            run_episode=processes.run_episode,
            on_rollout=lambda rollout: console.rollout(rollout.status),
            on_file=on_file,
            version=policy.version,
            max_concurrent=config.rollout.max_concurrent,
            failures=FailurePolicy(config.rollout.failures, retries=config.rollout.retries),
            greedy=greedy,
        ).run()
        watch.cancel()


def _request(slot: Slot, task: Task, *, greedy: bool, ungraded: Rollout | None) -> EpisodeRequest:
    return EpisodeRequest(
        task=task,
        group_id=group_id(slot.position),
        rollout_id=rollout_id(slot.position, slot.member),
        attempt=slot.attempt,
        greedy=greedy,
        ungraded=ungraded,
    )


def _now() -> float:
    return asyncio.get_running_loop().time()


def _of_version(rollout: Rollout, version: int) -> Rollout:
    """Say which weights sampled: the engine, which nobody pushed to, calls them number 0."""
    segments = tuple(
        replace(
            segment,
            weight_versions=np.where(segment.weight_versions >= 0, version, segment.weight_versions).astype(np.int32),
        )
        for segment in rollout.segments
    )
    return replace(rollout, segments=segments)

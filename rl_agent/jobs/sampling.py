"""Loop of the jobs that sample without training. Each rollout of a plan runs once and is recorded when it ends."""

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
from rl_agent.jobs.preflight import require_startable, require_weights
from rl_agent.jobs.sampling_records import SamplingPlan, SamplingRecords, tasks_of
from rl_agent.rollout.attempts import run_episode_attempts
from rl_agent.rollout.failures import FailurePolicy
from rl_agent.rollout.group import EpisodeRequest, Group, Rollout, Slot
from rl_agent.rollout.metrics import rollout_metrics
from rl_agent.tracking.console import Console
from rl_agent.tracking.tracker import Tracker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from rl_agent.config.schema import Config
    from rl_agent.jobs.checkpoints import Policy
    from rl_agent.jobs.configs import SamplingJobConfig
    from rl_agent.run_folder import RunFolder
    from rl_agent.tasks.task import Task

log = logging.getLogger(__name__)

OUTAGE_POLL_S: Final = 1.0
"""Interval between checks whether an outage admits a probe."""


@dataclass(slots=True, kw_only=True)
class SamplingLoop:
    """Rollouts of one job. `run` returns when all of them have ended."""

    records: SamplingRecords
    tasks: Iterator[Task]
    """All tasks of the job, in order."""
    run_episode: Callable[[EpisodeRequest], Awaitable[Rollout]]
    on_rollout: Callable[[Rollout], None]
    on_file: Callable[[int, list[Group]], None]
    """Called with the number and the groups of each file written."""
    version: int
    """Version of the weights that sample."""
    max_concurrent: int
    failures: FailurePolicy
    greedy: bool = False
    _open: dict[int, list[Task]] = field(default_factory=dict)
    """File number -> its tasks so far."""

    async def run(self) -> None:
        """Run all missing rollouts. Raises ConfigError if the records of an earlier run belong to other tasks."""
        for rollout in self.records.done.values():
            self.on_rollout(rollout)
        missing = self._missing()
        async with asyncio.TaskGroup() as workers:
            for _ in range(self.max_concurrent):
                workers.create_task(self._work(missing))
        self._close()

    def _missing(self) -> Iterator[tuple[Slot, Task]]:
        """Yield the slots to run, in order."""
        plan, records = self.records.plan, self.records
        first = records.next_file
        for position, task in enumerate(self.tasks):
            file = plan.file(position)
            if file < first:
                continue
            self._open.setdefault(file, []).append(task)
            for slot in (Slot(position=position, member=member) for member in range(plan.members)):
                known = records.done.get(slot)
                if known is None:
                    yield slot, task
                elif known.task_id != task.task_id:
                    raise ConfigError(
                        f"rollout {known.rollout_id}: recorded for task {known.task_id}, but the data now has task {task.task_id} there. "
                        "Resume with the data, the seed and the job settings of the original run."
                    )

    async def _work(self, missing: Iterator[tuple[Slot, Task]]) -> None:
        for slot, task in missing:
            await self._admission()
            request = EpisodeRequest(task=task, slot=slot, greedy=self.greedy)
            _, rollout = await run_episode_attempts(request, self.run_episode, self.failures, self._rest)
            rollout = _with_version(rollout, self.version)
            self.records.keep(slot, rollout)
            self.on_rollout(rollout)
            self._close()

    async def _rest(self, _: EpisodeRequest, rollout: Rollout, pause_s: float) -> None:
        log.warning("%s: %s (%s); again in %.0f s", rollout.rollout_id, rollout.status, rollout.detail, pause_s)
        await asyncio.sleep(pause_s)
        await self._admission()

    async def _admission(self) -> None:
        """Wait until an outage is over, or admits a probe. Raises InfraError if the outage lasts too long."""
        loop = asyncio.get_running_loop()
        while self.failures.limit(loop.time()) == 0:  # noqa: ASYNC110 (only time ends the wait)
            await asyncio.sleep(OUTAGE_POLL_S)
        self.failures.started()

    def _close(self) -> None:
        """Write all complete files, in order."""
        records = self.records
        while (file := records.next_file) in self._open:
            whole = len(self._open[file]) * records.plan.members == len(records.plan.slots(file))
            groups = records.groups(self._open[file]) if whole else None
            if groups is None:
                return
            del self._open[file]
            # Before the records: a run killed in between repeats the metrics, and never has records without them.
            self.on_file(file, groups)
            records.close(groups)


async def sample(
    config: Config,
    job: SamplingJobConfig,
    folder: RunFolder,
    *,
    members: int,
    greedy: bool = False,
    finish: Callable[[Policy, Tracker, Console], None],
) -> None:
    """Start the engine and the workers without a trainer, run the missing rollouts, and call `finish`.

    `members`: rollouts per task.
    """
    source = config.data.build()
    count, tasks = tasks_of(source, config, job.tasks)
    plan = SamplingPlan(tasks=count, members=members, per_file=config.rollout.tasks_per_step)
    records = SamplingRecords(folder.rollouts, folder.buffer, plan)
    records.load()
    folder.truncate_metrics(records.next_file - 1)
    with (
        Console(
            steps=plan.files,
            first_step=records.next_file - 1,
            rollouts_per_step=plan.per_file * members,
            live=config.tracking.console,
        ) as console,
        Tracker(config.tracking, folder, as_plain(config), run_id=folder.root.name) as tracker,
    ):
        console.say(f"run folder: {folder.root}")
        policy = await policy_of(config, job.checkpoint, folder)
        require_weights(policy.folder)
        if records.next_file <= plan.files:
            await require_startable(config, next(source.tasks(config.seed)))
            if records.next_file > 1 or records.done:
                before = len(records.done) + sum(len(plan.slots(file)) for file in range(1, records.next_file))
                console.say(f"resuming: {before} of {count * members} rollouts are recorded")
            console.say(
                f"sampling {count} tasks x {members} rollouts with {policy.name} (weights number {policy.version})"
            )
            await _sample(config, folder, policy, records, tasks, greedy, console, tracker)
        finish(policy, tracker, console)


async def _sample(
    config: Config,
    folder: RunFolder,
    policy: Policy,
    records: SamplingRecords,
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

    async with cluster(config, folder, policy.folder, trains=False) as processes, asyncio.TaskGroup() as alive:
        watch = alive.create_task(processes.watch())
        await SamplingLoop(
            records=records,
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


def _with_version(rollout: Rollout, version: int) -> Rollout:
    """Set the version of the weights that sampled. The engine reports version 0, since no weights were pushed to it."""
    segments = tuple(
        replace(
            segment,
            weight_versions=np.where(segment.weight_versions >= 0, version, segment.weight_versions).astype(np.int32),
        )
        for segment in rollout.segments
    )
    return replace(rollout, segments=segments)

"""The rollout driver of the train job, restored from the ledger and buffer of the run folder."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rl_agent.rollout.algo_requirements import dropped_groups, with_greedy_baselines
from rl_agent.rollout.buffer import Buffer
from rl_agent.rollout.driver import Driver, Records
from rl_agent.rollout.failures import FailurePolicy
from rl_agent.rollout.ledger import RolloutLedger
from rl_agent.rollout.resume import Shape, restore
from rl_agent.rollout.scheduler import Scheduler

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from rl_agent.cluster.bring_up import Cluster
    from rl_agent.config.schema import Config
    from rl_agent.jobs.progress import Progress
    from rl_agent.tasks.source import TaskSource


@contextmanager
def open_driver(
    config: Config, progress: Progress, processes: Cluster, source: TaskSource, first: int, tasks: asyncio.TaskGroup
) -> Iterator[Driver]:
    """Open a driver whose first step is `first`. Its episodes run in `tasks` and end with the context."""
    rollout, algo = config.rollout, config.algo
    ledger, buffer = RolloutLedger(progress.folder.ledger), Buffer(progress.folder.buffer)
    staleness = max_staleness(config)
    shape = Shape(
        first_step=first,
        tasks_per_step=rollout.tasks_per_step,
        members=algo.group_size + rollout.extra_members,
        max_staleness=staleness,
    )
    restored = restore(ledger, buffer, source, seed=config.seed, shape=shape)
    if restored.rollouts:
        progress.say(f"reusing {len(restored.rollouts)} finished rollouts of the earlier run")
    driver = Driver(
        scheduler=Scheduler(
            tasks_per_step=rollout.tasks_per_step,
            group_size=algo.group_size,
            max_concurrent=rollout.max_concurrent,
            max_staleness=staleness,
            last_step=config.job.steps,
            version=first,
            extra_tasks=rollout.extra_tasks,
            extra_members=rollout.extra_members,
            max_filtered=round(rollout.refill_limit * rollout.tasks_per_step),
            history=restored.history,
        ),
        source=source,
        seed=config.seed,
        failures=FailurePolicy(rollout.failures, retries=rollout.retries),
        records=Records(ledger=ledger, buffer=buffer, on_rollout=progress.rollout),
        run_episode=with_greedy_baselines(processes.run_episode, algo),
        tasks=tasks,
        drop=dropped_groups(algo),
        done=restored.rollouts,
    )
    try:
        yield driver
    finally:
        driver.close()
        ledger.close()


def max_staleness(config: Config) -> int:
    """Return the maximum number of weight versions between the sampling and the training of a token."""
    bound: int = config.algo.max_staleness
    if config.rollout.mode == "sync":
        return 0
    return min(bound, 1) if config.rollout.mode == "one_step_off" else bound

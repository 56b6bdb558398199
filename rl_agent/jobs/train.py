"""The train job: sample groups, train, push, record, save, repeat."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from rl_agent.cluster.bring_up import cluster
from rl_agent.config.load import as_plain
from rl_agent.jobs.driver import open_driver
from rl_agent.jobs.evaluation import Evaluation
from rl_agent.jobs.held_out import held_out
from rl_agent.jobs.preflight import require_layout, require_startable, require_weights
from rl_agent.jobs.progress import Progress
from rl_agent.jobs.replay import replay
from rl_agent.rollout import records
from rl_agent.rollout.batch import build_batch
from rl_agent.rollout.concurrency import adapt_limit
from rl_agent.rollout.metrics import rollout_metrics
from rl_agent.rollout.pass_rates import PassRates
from rl_agent.rollout.suspects import Suspects
from rl_agent.run_folder import PASS_RATES, QUARANTINE
from rl_agent.tasks.quarantine import Quarantine, Unquarantined
from rl_agent.tracking.console import Console
from rl_agent.tracking.tracker import Tracker
from rl_agent.trainer.base import StepResult

if TYPE_CHECKING:
    from rl_agent.cluster.bring_up import Cluster
    from rl_agent.config.schema import Config
    from rl_agent.jobs.configs import TrainConfig
    from rl_agent.run_folder import Checkpoint, RunFolder
    from rl_agent.tasks.source import TaskSource


def run(config: Config, job: TrainConfig, folder: RunFolder) -> None:
    """Run the job."""
    checkpoint = folder.last_checkpoint() if config.resume else None
    recorded = config.data.replay
    asyncio.run(
        replay(config, job, folder, checkpoint, Path(recorded)) if recorded else _run(config, job, folder, checkpoint)
    )


async def _run(config: Config, job: TrainConfig, folder: RunFolder, checkpoint: Checkpoint | None) -> None:
    """Start all processes, then train."""
    source = config.data.build()
    task = next(source.tasks(config.seed))  # unreadable data fails here
    model_folder = config.model.build().folder(folder.root)
    require_weights(model_folder)
    require_layout(config, model_folder)
    await require_startable(config, task)
    first = checkpoint.step if checkpoint else 0
    folder.remove_unfinished()
    folder.truncate_metrics(first)
    with (
        Console(
            steps=job.steps,
            first_step=first,
            rollouts_per_step=config.rollout.tasks_per_step * config.algo.group_size,
            live=config.tracking.console,
        ) as console,
        Tracker(config.tracking, folder, as_plain(config), run_id=folder.root.name) as tracker,
    ):
        console.say(f"run folder: {folder.root}")
        console.say("starting the policy server, the trainer and the rollout workers")
        async with asyncio.TaskGroup() as beside:  # the held-out set takes two seconds: make it during the start
            making = beside.create_task(asyncio.to_thread(held_out, config, model_folder))
            async with cluster(config, folder, model_folder) as processes:
                if checkpoint:
                    await processes.trainers.load(checkpoint.folder)
                    console.say(f"resuming after step {first}")
                progress = Progress(config, job, folder, tracker, console, await making, job.steps)
                await _train(config, job, processes, source, progress, checkpoint)
                await processes.trainers.export(folder.model)
        progress.finish()


async def _train(
    config: Config,
    job: TrainConfig,
    processes: Cluster,
    source: TaskSource,
    progress: Progress,
    checkpoint: Checkpoint | None,
) -> None:
    """Run the training loop. Step `s` turns weights number `s` into `s + 1`."""
    first = checkpoint.step if checkpoint else 0
    quarantine = Quarantine(progress.folder.root / QUARANTINE)
    suspects = Suspects(quarantine, after=job.quarantine_after)
    rates = PassRates(progress.folder.root / PASS_RATES)
    await progress.before_training(processes, first)
    async with asyncio.TaskGroup() as tasks:
        around = [tasks.create_task(processes.watch())]
        with open_driver(config, progress, processes, Unquarantined(source, quarantine), first, tasks) as driver:
            around.append(tasks.create_task(adapt_limit(driver, config.rollout, processes.load)))
            evaluation = Evaluation(config, job, progress.folder.rollouts, driver, tasks)
            for step in range(first, job.steps):
                with progress.timed("rollout"):
                    groups = await driver.groups(step)
                of_tasks = suspects.observe(groups) | rates.observe(groups)  # before more tasks are drawn
                batch = build_batch(groups)
                with progress.timed("train"):
                    trained = await processes.trainers.step(batch) if batch else StepResult(updated=False)
                with progress.timed("push"):
                    await progress.push(processes, step + 1)
                driver.pushed(step + 1)
                evaluation.begin(step + 1)
                await asyncio.to_thread(records.save, progress.folder.rollouts, step + 1, groups, config.rollout.save)
                metrics = rollout_metrics(groups, step) | driver.metrics() | processes.restarts | dict(trained.metrics)
                metrics |= of_tasks | await evaluation.metrics(step + 1)
                await progress.after_step(processes.trainers, step + 1, metrics, groups)
                await progress.save(processes.trainers, step + 1, tasks, driver)
        for task in around:
            task.cancel()

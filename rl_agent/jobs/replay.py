"""The train job on recorded rollouts, without engine and sandboxes (`data.replay=<run folder>`).

With the configuration of the recorded run, it repeats the steps exactly. With another configuration, it shows the
effect of another algorithm, learning rate or layout on the same samples.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rl_agent.cluster.bring_up import trainers
from rl_agent.config.load import as_plain
from rl_agent.jobs.held_out import held_out
from rl_agent.jobs.preflight import require_layout, require_weights
from rl_agent.jobs.progress import Progress
from rl_agent.jobs.recorded import require_known_tokens, require_plain_sampling, require_recorded, require_whole_groups
from rl_agent.rollout import records
from rl_agent.rollout.batch import build_batch
from rl_agent.rollout.metrics import rollout_metrics
from rl_agent.run_folder import RunFolder
from rl_agent.tracking.console import Console
from rl_agent.tracking.tracker import Tracker
from rl_agent.trainer.base import StepResult

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rl_agent.cluster.bring_up import Trainers
    from rl_agent.config.schema import Config
    from rl_agent.jobs.configs import TrainConfig
    from rl_agent.run_folder import Checkpoint

KEY = "data.replay"


async def replay(
    config: Config, job: TrainConfig, folder: RunFolder, checkpoint: Checkpoint | None, recorded: Path
) -> None:
    """Train on each recorded step once, in order, at most `job.steps` of them."""
    steps = require_recorded(recorded, KEY)[: job.steps]
    require_whole_groups(recorded, KEY)
    require_plain_sampling(recorded, KEY)
    model_folder = config.model.build().folder(folder.root)
    require_weights(model_folder)
    require_layout(config, model_folder)
    kept = RunFolder(recorded).rollouts
    require_known_tokens(records.load_rollouts(kept, steps[0]), model_folder, f"{KEY}={recorded}")
    first = checkpoint.step if checkpoint else 0
    folder.remove_unfinished()
    folder.truncate_metrics(first)
    with (
        Console(steps=len(steps), first_step=first, rollouts_per_step=0, live=config.tracking.console) as console,
        Tracker(config.tracking, folder, as_plain(config), run_id=folder.root.name) as tracker,
    ):
        console.say(f"run folder: {folder.root}")
        console.say(f"training on {len(steps)} recorded steps of {recorded}")
        async with trainers(config, folder, model_folder) as policy:
            if checkpoint:
                await policy.load(checkpoint.folder)
            progress = Progress(
                config, job, folder, tracker, console, held_out(config, model_folder), last_step=len(steps)
            )
            await _train(policy, progress, kept, steps, first)
            await policy.export(folder.model)
        progress.finish()


async def _train(policy: Trainers, progress: Progress, kept: Path, steps: Sequence[int], first: int) -> None:
    """Run the training loop. Recorded step `n` trained weights number `n - 1`."""
    async with asyncio.TaskGroup() as tasks:
        for number, step in enumerate(steps[first:], start=first + 1):
            with progress.timed("read"):
                groups = records.grouped(await asyncio.to_thread(records.load_rollouts, kept, step))
            batch = build_batch(groups)
            await policy.renumber(step - 1)
            with progress.timed("train"):
                trained = await policy.step(batch) if batch else StepResult(updated=False)
            await progress.after_step(policy, number, rollout_metrics(groups, step - 1) | dict(trained.metrics), groups)
            await progress.save(policy, number, tasks)

"""The sft job: supervised fine-tuning on demonstrations or on recorded rollouts.

Demonstrations of a scripted agent, some right and some wrong, make the warm start of the tiny policy. Recorded rollouts
are chosen by their reward (rejection sampling).
"""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import load_file, save_file

from rl_agent.algo.batch import TrainBatch
from rl_agent.cluster.bring_up import trainers
from rl_agent.config.load import as_plain
from rl_agent.errors import ConfigError
from rl_agent.jobs.held_out import held_out
from rl_agent.jobs.preflight import require_layout, require_weights
from rl_agent.jobs.recorded import require_known_tokens, require_recorded
from rl_agent.rollout import records
from rl_agent.rollout.batch import build_batch
from rl_agent.run_folder import RunFolder
from rl_agent.tokens.segment import NOT_SAMPLED
from rl_agent.tracking.console import Console
from rl_agent.tracking.tracker import Tracker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rl_agent.config.schema import Config
    from rl_agent.jobs.configs import SftConfig
    from rl_agent.rollout.group import Rollout
    from rl_agent.tasks.source import Demonstration

ROLLOUTS = "job.rollouts"


def run(config: Config, job: SftConfig, folder: RunFolder) -> None:
    """Run the job."""
    asyncio.run(_run(config, job, folder))


async def _run(config: Config, job: SftConfig, folder: RunFolder) -> None:
    recorded = Path(job.rollouts) if job.rollouts else None
    demonstrator = config.data.build_demonstrator()
    if recorded is not None:
        require_recorded(recorded, ROLLOUTS)
    model_folder = config.model.build().folder(folder.root)
    require_layout(config, model_folder)
    if recorded is not None:
        require_weights(model_folder)
        batches = _batches_of(_chosen(recorded, job.min_reward, model_folder), config.seed, job.batch_size)
    else:
        assert demonstrator is not None  # see SftConfig.problems
        batches = _batches(demonstrator.demonstrations(model_folder, config.seed, job.right_share), job.batch_size)
    measure = held_out(config, model_folder)
    target = Path(job.export) if job.export else folder.model
    async with trainers(config, folder, model_folder) as policy:
        with (
            Tracker(config.tracking, folder, as_plain(config), run_id=folder.root.name) as tracker,
            Console(steps=job.steps, first_step=0, rollouts_per_step=0, live=config.tracking.console) as console,
        ):
            for step in range(1, job.steps + 1):
                started = time.perf_counter()
                metrics = dict((await policy.step(next(batches))).metrics)
                metrics["time/train"] = time.perf_counter() - started
                if step % job.eval_every == 0 or step == job.steps:
                    if measure is not None:
                        metrics["eval/p_right"] = await measure.p_right(policy)
                        metrics["eval/p_listed"] = await measure.p_listed(policy)
                    console.step(step, metrics)
                tracker.log(step, metrics)
            await policy.export(target)
            if job.half and recorded is None:
                _halve(target / "model.safetensors")
            console.say(f"trained policy: {target}")


def _halve(path: Path) -> None:
    """Rewrite a safetensors file in float16."""
    tensors = {name: tensor.astype(np.float16) for name, tensor in load_file(path).items()}
    partial = path.with_suffix(".partial")
    save_file(tensors, partial, metadata={"format": "pt"})
    partial.replace(path)


def _chosen(recorded: Path, min_reward: float, model_folder: Path) -> list[Rollout]:
    """Return the recorded rollouts with trained tokens and at least `min_reward`. They stay in memory."""
    kept = RunFolder(recorded).rollouts
    rollouts = [one for step in records.recorded_steps(kept) for one in records.load_rollouts(kept, step)]
    chosen = [
        one
        for one in rollouts
        if one.reward is not None and one.reward >= min_reward and one.trained_tokens and not one.greedy
    ]
    if not chosen:
        best = max((one.reward for one in rollouts if one.reward is not None), default=None)
        raise ConfigError(
            f"{ROLLOUTS}={recorded}: none of its {len(rollouts)} rollouts has job.min_reward={min_reward} and trained tokens; "
            f"the best reward is {best}. Lower job.min_reward, or name another run."
        )
    require_known_tokens(chosen, model_folder, f"{ROLLOUTS}={recorded}")
    return chosen


def _batches_of(rollouts: Sequence[Rollout], seed: int, size: int) -> Iterator[TrainBatch]:
    """Yield batches endlessly. Every rollout occurs once per epoch, in a new order."""
    shuffled = (
        rollouts[place]
        for epoch in itertools.count()
        for place in np.random.default_rng([seed, epoch]).permutation(len(rollouts))
    )
    while True:
        batch = build_batch(records.grouped(list(itertools.islice(shuffled, min(size, len(rollouts))))))
        assert batch is not None
        # the loss must not depend on the reward or on the version of the sampling weights
        yield replace(
            batch,
            weight_versions=np.full_like(batch.weight_versions, NOT_SAMPLED),
            rewards=np.ones_like(batch.rewards),
        )


def _batches(demonstrations: Iterator[Demonstration], size: int) -> Iterator[TrainBatch]:
    while True:
        yield _batch(list(itertools.islice(demonstrations, size)))


def _batch(demonstrations: Sequence[Demonstration]) -> TrainBatch:
    count = len(demonstrations)
    tokens = np.concatenate([demonstration.tokens for demonstration in demonstrations])
    sampled = np.concatenate([demonstration.sampled for demonstration in demonstrations])
    return TrainBatch(
        tokens=tokens,
        loss_mask=sampled,
        rollout_logprobs=np.zeros(len(tokens), dtype=np.float32),
        weight_versions=np.full(len(tokens), -1, dtype=np.int32),
        segment_lengths=np.array([len(demonstration.tokens) for demonstration in demonstrations], dtype=np.int32),
        segment_rollout=np.arange(count, dtype=np.int32),
        rewards=np.ones(count, dtype=np.float32),
        rollout_group=np.zeros(count, dtype=np.int32),
    )

"""Supervised warm start: the tiny policy learns to act from demonstrations of a scripted agent, some right, some wrong."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import load_file, save_file

from rl_agent.algo.batch import TrainBatch
from rl_agent.cluster.bring_up import trainers
from rl_agent.config.load import as_plain, build
from rl_agent.engine.agent_style import agent_style
from rl_agent.engine.demonstration import Demonstrations, encoder
from rl_agent.errors import ConfigError
from rl_agent.jobs.held_out import held_out
from rl_agent.jobs.preflight import require_layout
from rl_agent.tasks.toy import ToyTasks, toy_tasks
from rl_agent.tasks.toy_kinds import KINDS
from rl_agent.tokens.template_renderer import TemplateRenderer
from rl_agent.tracking.console import Console
from rl_agent.tracking.tracker import Tracker
from rl_agent.trainer.tiny import TinyPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rl_agent.config.schema import Config
    from rl_agent.engine.demonstration import Demonstration
    from rl_agent.run_folder import RunFolder


def run(config: Config, folder: RunFolder) -> None:
    """Run the job."""
    asyncio.run(_run(config, folder))


async def _run(config: Config, folder: RunFolder) -> None:
    job = config.job
    model, source = build(config.model), build(config.data)
    if not isinstance(model, TinyPolicy) or not isinstance(source, ToyTasks):
        raise ConfigError(
            "job=sft makes demonstrations of the toy tasks for the tiny policy: it needs model=tiny data=toy"
        )
    model_folder = model.folder(folder.root)
    require_layout(config, model_folder)
    makes = Demonstrations(agent_style(model.style), TemplateRenderer(model_folder), encoder(model_folder))
    batches = _batches(makes, config.seed, job.batch_size, job.right_share)
    measure = held_out(model, source, model_folder)
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
                if measure is not None and (step % job.eval_every == 0 or step == job.steps):
                    metrics["eval/p_right"] = await measure.p_right(policy)
                    metrics["eval/p_listed"] = await measure.p_listed(policy)
                    console.step(step, metrics)
                tracker.log(step, metrics)
            await policy.export(target)
            if job.half:
                _halve(target / "model.safetensors")
            console.say(f"warm start: {target}")


def _halve(path: Path) -> None:
    """Rewrite a safetensors file in float16."""
    tensors = {name: tensor.astype(np.float16) for name, tensor in load_file(path).items()}
    partial = path.with_suffix(".partial")
    save_file(tensors, partial, metadata={"format": "pt"})
    partial.replace(path)


def _batches(makes: Demonstrations, seed: int, size: int, right_share: float) -> Iterator[TrainBatch]:
    """Fresh demonstrations of every kind of bug, in a mixed order."""
    rng = np.random.default_rng(seed)
    kinds = [str(name) for name in rng.permutation(list(KINDS))]
    tasks = toy_tasks(seed, "train", kinds)
    while True:
        yield _batch([makes.mixed(task, right_share) for task in itertools.islice(tasks, size)])


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

"""Bookkeeping of the train job around each step: measure, record, checkpoint, summarize."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rl_agent.cluster.bring_up import Cluster, Trainers
    from rl_agent.config.schema import Config
    from rl_agent.jobs.configs import TrainConfig
    from rl_agent.jobs.held_out import HeldOut
    from rl_agent.rollout.driver import Driver
    from rl_agent.rollout.group import Group, Rollout
    from rl_agent.run_folder import RunFolder
    from rl_agent.tokens.turn import Int32
    from rl_agent.tracking.console import Console
    from rl_agent.tracking.tracker import Tracker

PROBE_TOKENS = 64
"""Length of the probe sequence that verifies a weight push."""


class Progress:
    """Bookkeeping of one run."""

    def __init__(
        self,
        config: Config,
        job: TrainConfig,
        folder: RunFolder,
        tracker: Tracker,
        console: Console,
        held_out: HeldOut | None,
        last_step: int,
    ) -> None:
        """`last_step`: number of the last step."""
        self._last_step = last_step
        self.folder = folder
        self._config = config
        self._job = job
        self._tracker = tracker
        self._console = console
        self._held_out = held_out
        self._seconds: dict[str, float] = {}
        self._started = time.perf_counter()
        self._p_right_before: float | None = None
        self._saving: asyncio.Task[None] | None = None
        self._probe: Int32 = np.random.default_rng(config.seed).integers(0, PROBE_TOKENS, PROBE_TOKENS, dtype=np.int32)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Measure the duration of a stage as metric `time/<stage>`."""
        started = time.perf_counter()
        yield
        self._seconds[f"time/{stage}"] = time.perf_counter() - started

    async def before_training(self, processes: Cluster, first: int) -> None:
        """Push the weights as number `first`, and measure the policy before training."""
        await processes.push(first, self._probe)
        if self._held_out is not None:
            self._p_right_before = await self._held_out.p_right(processes.trainers)
            self._console.say(
                f"weights number {first} are in the engine; p(right) on the held-out set: {self._p_right_before:.3f}"
            )

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.say(text)

    def rollout(self, rollout: Rollout) -> None:
        """Count a finished rollout on the console."""
        self._console.rollout(rollout.status)

    async def push(self, processes: Cluster, version: int) -> None:
        """Push the trained weights to the engine."""
        await processes.push(version, self._probe)

    async def after_step(
        self, trainers: Trainers, step: int, metrics: Mapping[str, float], groups: Sequence[Group]
    ) -> None:
        """Measure, log and export. `step`: number of finished steps. `groups`: the groups that the step trained on."""
        job = self._job
        figures = {**metrics, **self._seconds}
        if "time/rollout" in figures:
            figures["tokens/per_second"] = figures["tokens/sampled"] / figures["time/rollout"]
        if self._held_out is not None and job.eval_every and (step % job.eval_every == 0 or step == self._last_step):
            figures["eval/p_right"] = await self._held_out.p_right(trainers)
        self._tracker.log(step, figures)
        self._tracker.rollouts(step, groups)
        self._console.step(step, figures)
        if job.export_every and step % job.export_every == 0:
            await trainers.export(self.folder.begin_export(step))
            self.folder.finish_export(step)

    async def save(self, trainers: Trainers, step: int, tasks: asyncio.TaskGroup, driver: Driver | None = None) -> None:
        """Begin the checkpoint of `step` if one is due. It is written and becomes valid while the next step runs.

        The driver's ledger is flushed before the checkpoint becomes valid, and the driver is notified afterwards.
        """
        job = self._job
        if step % job.save_every and step != self._last_step:
            return
        if self._saving is not None:
            await self._saving  # one at a time, since each has a copy of weights and optimizer
        await trainers.begin_save(self.folder.begin_checkpoint(step))
        self._saving = tasks.create_task(self._finish_save(trainers, step, driver), name=f"checkpoint {step}")
        if step == self._last_step:
            await self._saving

    async def _finish_save(self, trainers: Trainers, step: int, driver: Driver | None) -> None:
        await trainers.finish_save()
        if driver is not None:
            await asyncio.to_thread(driver.flush)
        state = {"weight_version": step, "seed": self._config.seed}
        await asyncio.to_thread(self.folder.finish_checkpoint, step, state, self._job.keep_checkpoints)
        if driver is not None:
            driver.saved(step)

    def finish(self) -> None:
        """Print the final table, and write the final figures."""
        history = [json.loads(line) for line in self.folder.metrics.read_text().splitlines()]
        figures: dict[str, float] = {"steps": len(history), "seconds": round(time.perf_counter() - self._started, 1)}
        if self._p_right_before is not None and "eval/p_right" in history[-1]:
            figures |= {"p_right_before": self._p_right_before, "p_right_after": history[-1]["eval/p_right"]}
        self._tracker.summary(figures)
        shown = {
            name: f"{value:g}" if name in ("steps", "seconds") else f"{value:.3f}" for name, value in figures.items()
        }
        self._console.summary(history, shown | {"trained policy": str(self.folder.model)})

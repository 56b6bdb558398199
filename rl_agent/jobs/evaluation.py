"""Evaluation during training: the agent runs held-out tasks, ahead of waiting rollouts, while training continues."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Final, cast

import numpy as np
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rl_agent.errors import ConfigError
from rl_agent.rollout import records

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rl_agent.config.data import DataConfig
    from rl_agent.config.schema import Config
    from rl_agent.jobs.configs import TrainConfig
    from rl_agent.rollout.driver import Driver
    from rl_agent.rollout.group import Rollout
    from rl_agent.tasks.task import Task

log = logging.getLogger(__name__)

WEIGHT_VERSION: Final = "eval/weight_version"


class Evaluation:
    """Evaluations of a run, one at a time. Their figures are logged with the first step that ends after them."""

    def __init__(
        self, config: Config, job: TrainConfig, folder: Path, driver: Driver, tasks: asyncio.TaskGroup
    ) -> None:
        """`folder`: folder for the rollouts. Raises ConfigError if the held-out data cannot be read."""
        self._every = job.eval_tasks_every if job.eval_tasks else 0
        self._last = job.steps
        self._held_out = held_out_tasks(config, job) if self._every else ()
        self._folder = folder
        self._driver = driver
        self._tasks = tasks
        self._running: asyncio.Task[dict[str, float]] | None = None
        self._over: dict[str, float] = {}
        """Figures of the previous evaluation that are not logged yet."""

    def begin(self, step: int) -> None:
        """Start an evaluation if one is due after `step` steps. The engine must have the weights of that number."""
        if not self._every or (step % self._every and step != self._last):
            return
        if self._running is not None and not self._running.done():
            if step != self._last:  # `metrics` evaluates the last weights in any case
                log.warning("weights number %d are not evaluated: the previous evaluation is still running", step)
            return
        if self._running is not None:
            self._over = self._running.result()
        self._running = self._tasks.create_task(self._run(step), name=f"evaluation {step}")

    async def metrics(self, step: int) -> dict[str, float]:
        """Return the figures of a finished evaluation.

        After the last step, wait for the evaluation of the last weights.
        """
        over, self._over = self._over, {}
        if self._running is None or (step != self._last and (over or not self._running.done())):
            return over
        if step == self._last:
            _tell(over)
            if (await self._running)[WEIGHT_VERSION] != step:
                self.begin(step)
                _tell(self._over)
        running, self._running = self._running, None
        return await running

    async def _run(self, version: int) -> dict[str, float]:
        done = await self._driver.evaluate(self._held_out)
        records.save_evaluation(self._folder, version, done)
        return evaluation_metrics([rollout for _, rollout in done], version)


def held_out_tasks(config: Config, job: TrainConfig) -> Sequence[Task]:
    """Return the first `job.eval_tasks` tasks of `data` with the fields of `job.eval_data`.

    Raises ConfigError for unknown fields.
    """
    try:
        data = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(config.data), job.eval_data or {}))
    except OmegaConfBaseException as error:
        raise ConfigError(f"job.eval_data: does not fit data: {str(error).splitlines()[0]}") from error
    return tuple(itertools.islice(cast("DataConfig", data).build().tasks(config.seed), job.eval_tasks))


def evaluation_metrics(rollouts: Sequence[Rollout], version: int) -> dict[str, float]:
    """Return the metrics over the rollouts with a reward. Infrastructure failures are excluded."""
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    figures = {WEIGHT_VERSION: float(version), "eval/rollouts": float(len(rewards))}
    if not rewards:
        return figures
    solved = [rollout.status == "solved" for rollout in rollouts if rollout.reward is not None]
    return figures | {"eval/reward_mean": float(np.mean(rewards)), "eval/solved_rate": float(np.mean(solved))}


def _tell(figures: Mapping[str, float]) -> None:
    """Log the figures of an evaluation for which no step is left. The last step reports the last weights."""
    if figures:
        told = ", ".join(f"{name} {value:.3f}" for name, value in figures.items() if name != WEIGHT_VERSION)
        log.warning(
            "the evaluation of weights number %d finished after the last step: %s", figures[WEIGHT_VERSION], told
        )

"""Evaluation beside training: the agent runs held-out tasks, before what waits, while training goes on."""

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
    """One evaluation at a time; its figures go with the step that ends after it."""

    def __init__(
        self, config: Config, job: TrainConfig, folder: Path, driver: Driver, tasks: asyncio.TaskGroup
    ) -> None:
        """`folder`: where the rollouts are written. Raises ConfigError for held-out data that cannot be read."""
        self._every = job.eval_tasks_every if job.eval_tasks else 0
        self._last = job.steps
        self._held_out = held_out_tasks(config, job) if self._every else ()
        self._folder = folder
        self._driver = driver
        self._tasks = tasks
        self._running: asyncio.Task[dict[str, float]] | None = None
        self._over: dict[str, float] = {}
        """Figures that were not asked for before the next evaluation began."""

    def begin(self, step: int) -> None:
        """After `step` steps, with the weights of that number in the engine: evaluate if it is time."""
        if not self._every or (step % self._every and step != self._last):
            return
        if self._running is not None and not self._running.done():
            if step != self._last:  # the last weights are evaluated in any case, see `metrics`
                log.warning("weights number %d are not evaluated: the evaluation before is not over", step)
            return
        if self._running is not None:
            self._over = self._running.result()
        self._running = self._tasks.create_task(self._run(step), name=f"evaluation {step}")

    async def metrics(self, step: int) -> dict[str, float]:
        """The figures of an evaluation that is over; after the last step those of the last weights, which are waited for."""
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
    """The first `job.eval_tasks` of the data as `job.eval_data` changes it. Raises ConfigError for what the data does not know."""
    try:
        data = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(config.data), job.eval_data or {}))
    except OmegaConfBaseException as error:
        raise ConfigError(f"job.eval_data does not fit data: {str(error).splitlines()[0]}") from error
    return tuple(itertools.islice(cast("DataConfig", data).build().tasks(config.seed), job.eval_tasks))


def evaluation_metrics(rollouts: Sequence[Rollout], version: int) -> dict[str, float]:
    """Over the rollouts that have a reward; what infrastructure broke is no evidence."""
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    figures = {WEIGHT_VERSION: float(version), "eval/rollouts": float(len(rewards))}
    if not rewards:
        return figures
    solved = [rollout.status == "solved" for rollout in rollouts if rollout.reward is not None]
    return figures | {"eval/reward_mean": float(np.mean(rewards)), "eval/solved_rate": float(np.mean(solved))}


def _tell(figures: Mapping[str, float]) -> None:
    """Log the figures of an evaluation that has no step of its own left. The last step reports the last weights."""
    if figures:
        told = ", ".join(f"{name} {value:.3f}" for name, value in figures.items() if name != WEIGHT_VERSION)
        log.warning("the evaluation of weights number %d ended with the run: %s", figures[WEIGHT_VERSION], told)

"""Finished rollouts of later steps, kept with a checkpoint: which of them a resumed run can still use."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.rollout.group import Rollout
    from rl_agent.tasks.source import TaskSource


def usable(
    rollouts: Sequence[Rollout],
    source: TaskSource,
    *,
    seed: int,
    first_step: int,
    tasks_per_step: int,
    group_size: int,
    max_staleness: int,
) -> list[Rollout]:
    """Those that have their place in the data order and the staleness bound of now; the configuration may have changed.

    `first_step`: the first that will run. What infrastructure broke is left out too: it deserves another run.
    """
    kept = []
    for step, members in itertools.groupby(rollouts, key=lambda rollout: place(rollout.rollout_id)[0]):
        if step < first_step:
            continue
        tasks = list(itertools.islice(source.tasks(seed, step * tasks_per_step), tasks_per_step))
        for rollout in members:
            _, task, member = place(rollout.rollout_id)
            in_order = task < tasks_per_step and member < group_size and rollout.task_id == tasks[task].task_id
            if in_order and rollout.reward is not None and _oldest(rollout, step) >= step - max_staleness:
                kept.append(rollout)
    return kept


def place(rollout_id: str) -> tuple[int, int, int]:
    """Step, task and member that a rollout's id names."""
    step, task, member = (int(part) for part in rollout_id.split("-"))
    return step, task, member


def _oldest(rollout: Rollout, step: int) -> int:
    """The oldest weights that sampled a token of it."""
    return min(
        (int(part.weight_versions[part.loss_mask].min()) for part in rollout.segments if part.trained), default=step
    )

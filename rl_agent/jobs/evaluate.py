"""The evaluate job: pass@k of a policy with a confidence interval, and a table of tasks."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, Final

from rl_agent.jobs.pass_at_k import interval, pass_at_k
from rl_agent.jobs.sampling import sample
from rl_agent.jobs.tally import TaskTally, as_text, tally, totals
from rl_agent.run_folder import write_atomic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.config.schema import Config
    from rl_agent.jobs.checkpoints import Policy
    from rl_agent.jobs.configs import EvaluateConfig
    from rl_agent.run_folder import RunFolder
    from rl_agent.tracking.console import Console
    from rl_agent.tracking.tracker import Tracker

EVALUATION: Final = "evaluation.jsonl"
"""File with one JSON object per task."""


def run(config: Config, job: EvaluateConfig, folder: RunFolder) -> None:
    """Run the job. It writes evaluation.jsonl, summary.json and the rollouts to the run folder."""
    started = time.perf_counter()

    def finish(policy: Policy, tracker: Tracker, console: Console) -> None:
        rows = task_rows(tally(folder.rollouts), job.k, policy)
        write_atomic(folder.root / EVALUATION, b"".join(json.dumps(row).encode() + b"\n" for row in rows))
        figures = totals(tally(folder.rollouts)) | summarised(rows, job, config.seed)
        figures |= {"checkpoint": policy.name, "weight_version": policy.version, "greedy": job.greedy}
        figures["temperature"] = 0.0 if job.greedy else config.rollout.sampling.temperature
        figures["seconds"] = round(time.perf_counter() - started, 1)
        tracker.table("evaluation/tasks", rows)
        tracker.summary(figures)
        console.table("tasks", shown(rows, job.shown))
        if len(rows) > job.shown:
            console.say(f"... and {len(rows) - job.shown} more tasks in {folder.root / EVALUATION}")
        for line in told(figures, job):
            console.say(line)

    asyncio.run(sample(config, job, folder, members=job.rollouts, greedy=job.greedy, finish=finish))


def task_rows(tasks: Sequence[TaskTally], ks: Sequence[int], policy: Policy) -> list[dict[str, Any]]:
    """Return one row per task. pass@k is None if fewer than k rollouts have a reward: missing is not zero (law 4)."""
    return [
        {
            "task_id": task.task_id,
            "rollouts": task.rollouts,
            "graded": len(task.rewards),
            "solved": task.solved,
            **{
                f"pass@{k}": pass_at_k(len(task.rewards), task.solved, k) if len(task.rewards) >= k else None
                for k in ks
            },
            "statuses": dict(task.statuses.most_common()),
            "turns_mean": task.turns / task.rollouts,
            "sampled_tokens": task.tokens,
            "seconds_mean": round(task.seconds / task.rollouts, 2),
            "checkpoint": policy.name,
            "weight_version": policy.version,
        }
        for task in tasks
    ]


def summarised(rows: Sequence[dict[str, Any]], job: EvaluateConfig, seed: int) -> dict[str, Any]:
    """Return the mean pass@k over the tasks that have one, with its interval, and the number of tasks without."""
    figures: dict[str, Any] = {}
    for k in job.k:
        name = f"pass@{k}"
        values = [row[name] for row in rows if row[name] is not None]
        figures[f"{name}/tasks_left_out"] = len(rows) - len(values)
        if values:
            low, high = interval(values, job.interval, confidence=job.confidence, seed=seed)
            figures |= {name: sum(values) / len(values), f"{name}/low": low, f"{name}/high": high}
    return figures


def shown(rows: Sequence[dict[str, Any]], count: int) -> list[dict[str, str]]:
    """Return the first `count` rows for the console."""
    hidden = {"checkpoint", "weight_version", "graded"}
    return [{name: as_text(value) for name, value in row.items() if name not in hidden} for row in rows[:count]]


def told(figures: dict[str, Any], job: EvaluateConfig) -> list[str]:
    """Return the figures as lines for the console."""
    lines = []
    for k in job.k:
        name = f"pass@{k}"
        if name not in figures:
            lines.append(f"{name}: unknown, since no task has {k} rollouts with a reward")
            continue
        left_out = figures[f"{name}/tasks_left_out"]
        note = f"; {left_out} tasks left out: fewer than {k} rollouts with a reward" if left_out else ""
        lines.append(
            f"{name}: {figures[name]:.3f}  [{figures[f'{name}/low']:.3f}, {figures[f'{name}/high']:.3f}] "
            f"({job.confidence:.0%}, {job.interval.value}, {figures['tasks'] - left_out} tasks{note})"
        )
    return lines + [
        f"{name}: {as_text(value)}"
        for name, value in figures.items()
        if not name.startswith("pass@") and name != "tasks"
    ]

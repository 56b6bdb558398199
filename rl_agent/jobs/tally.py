"""Totals over recorded rollouts. They are read from the records on disk, so a resumed run counts all of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from rl_agent.rollout import records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(slots=True, kw_only=True)
class TaskTally:
    """Totals of one task."""

    task_id: str
    statuses: Counter[str] = field(default_factory=Counter)
    rewards: list[float] = field(default_factory=list)
    """Rewards of rollouts that have one. Rollouts that infrastructure broke have none (law 4)."""
    turns: int = 0
    tokens: int = 0
    """Number of sampled tokens."""
    seconds: float = 0.0
    """Total duration of the rollouts, boot to verdict."""

    @property
    def rollouts(self) -> int:
        """Number of rollouts, including those without a reward."""
        return self.statuses.total()

    @property
    def solved(self) -> int:
        """Number of solved rollouts."""
        return self.statuses["solved"]

    def add(self, record: dict[str, Any]) -> None:
        """Count one recorded rollout."""
        self.statuses[record["status"]] += 1
        if record["reward"] is not None:
            self.rewards.append(float(record["reward"]))
        self.turns += len(record["turns"])
        self.tokens += record["sampled_tokens"]
        self.seconds += record["seconds"].get("total", 0.0)


def tally(rollouts: Path) -> list[TaskTally]:
    """Return the totals of each task recorded in a run folder's `rollouts`, in order."""
    tasks: dict[str, TaskTally] = {}
    for record in _lines(rollouts):
        tasks.setdefault(record["group_id"], TaskTally(task_id=record["task_id"])).add(record)
    return list(tasks.values())


def totals(tasks: list[TaskTally]) -> dict[str, Any]:
    """Return statuses, tokens, seconds and the solved share (of rollouts with a reward) over all tasks."""
    statuses = sum((task.statuses for task in tasks), Counter[str]())
    graded = sum(len(task.rewards) for task in tasks)
    figures: dict[str, Any] = {
        "tasks": len(tasks),
        "rollouts": statuses.total(),
        "without_reward": statuses.total() - graded,
        "statuses": dict(statuses.most_common()),
        "sampled_tokens": sum(task.tokens for task in tasks),
        "rollout_seconds": round(sum(task.seconds for task in tasks), 1),
    }
    if graded:  # missing is not zero
        figures["solved_rate"] = sum(task.solved for task in tasks) / graded
        figures["reward_mean"] = sum(sum(task.rewards) for task in tasks) / graded
    return figures


def as_text(value: Any) -> str:
    """Return a figure as text."""
    if isinstance(value, dict):
        return "  ".join(f"{name} {count}" for name, count in value.items())
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _lines(rollouts: Path) -> Iterator[dict[str, Any]]:
    for step in records.recorded_steps(rollouts):
        for line in (rollouts / f"step_{step:05d}.jsonl").read_bytes().splitlines():
            yield orjson.loads(line)

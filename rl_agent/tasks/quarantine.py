"""Tasks that are not to be trained on, and a source without them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rl_agent.tasks.source import TaskSource
    from rl_agent.tasks.task import Task

SPARE_SEED: Final = 1_000_003
"""Added to the seed for the stream that replaces tasks in quarantine."""
MOST_REPLACED: Final = 1000
"""Tries to find a replacement; a source in which so many in a row are in quarantine has none to give."""


class Quarantine:
    """Task id -> why, in a file of JSON lines that grows."""

    def __init__(self, path: Path) -> None:
        """Reads what a run before has written there."""
        self._path = path
        self.reasons: dict[str, str] = {}
        if path.is_file():
            for line in path.read_text().splitlines():
                try:
                    row = json.loads(line)
                    self.reasons[str(row["task_id"])] = str(row["reason"])
                except (ValueError, KeyError, TypeError):
                    continue  # a line that a killed run has half written

    def __contains__(self, task_id: str) -> bool:
        return task_id in self.reasons

    def __len__(self) -> int:
        return len(self.reasons)

    def add(self, task_id: str, reason: str, detail: str = "") -> None:
        """Put a task in, once."""
        if task_id in self.reasons:
            return
        self.reasons[task_id] = reason
        with self._path.open("a") as file:
            file.write(json.dumps({"task_id": task_id, "reason": reason, "detail": detail}) + "\n")


class Unquarantined:
    """Another source, in which each task that is in quarantine is replaced, so that no other changes its place."""

    def __init__(self, source: TaskSource, quarantine: Quarantine) -> None:
        self._source = source
        self._quarantine = quarantine

    def tasks(self, seed: int, start: int = 0) -> Iterator[Task]:
        """See TaskSource."""
        for position, task in enumerate(self._source.tasks(seed, start), start=start):
            yield task if task.task_id not in self._quarantine else self._replacement(seed, position)

    def _replacement(self, seed: int, position: int) -> Task:
        for tried, task in enumerate(self._source.tasks(seed + SPARE_SEED, position)):
            if task.task_id not in self._quarantine:
                return task
            if tried >= MOST_REPLACED:
                break
        raise ConfigError(
            f"all tasks are in quarantine ({len(self._quarantine)}); the run folder's quarantine.jsonl says why"
        )

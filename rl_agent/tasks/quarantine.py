"""Quarantine of broken tasks, and a task source that skips them."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rl_agent.tasks.source import TaskSource
    from rl_agent.tasks.task import Task

log = logging.getLogger(__name__)


class Quarantine:
    """Quarantined tasks with reason and start position, in a JSON-lines file that only grows."""

    def __init__(self, path: Path) -> None:
        """Read the entries of earlier runs."""
        self._path = path
        self.reasons: dict[str, str] = {}
        self._since: dict[str, int] = {}
        self.drawn = 0
        """Number of stream positions handed out. A task that is added now is skipped from this position on."""
        if path.is_file():
            for line in path.read_text().splitlines():
                try:
                    row = json.loads(line)
                    self.reasons[str(row["task_id"])] = str(row["reason"])
                    self._since[str(row["task_id"])] = int(row.get("since", 0))
                except (ValueError, KeyError, TypeError, AttributeError):
                    continue  # an incomplete line of a killed run

    def __contains__(self, task_id: str) -> bool:
        return task_id in self.reasons

    def __len__(self) -> int:
        return len(self.reasons)

    def holds(self, task_id: str, position: int) -> bool:
        """Return whether the task is skipped at this position of the stream."""
        return self._since.get(task_id, position + 1) <= position

    def add(self, task_id: str, reason: str, detail: str = "") -> None:
        """Add a task, once."""
        if task_id in self.reasons:
            return
        self.reasons[task_id] = reason
        self._since[task_id] = self.drawn
        log.warning("task %s is in quarantine: %s %s", task_id, reason, detail[:200])
        with self._path.open("a") as file:
            row = {"task_id": task_id, "reason": reason, "since": self.drawn, "detail": detail}
            file.write(json.dumps(row) + "\n")


class Unquarantined:
    """Task source without the quarantined tasks of another source. Later tasks move up, so that none is repeated.

    The stream depends only on seed, position and quarantine. A task is skipped only from the position at which it was
    added, so earlier positions keep their tasks, in this process and after a resume.
    """

    def __init__(self, source: TaskSource, quarantine: Quarantine) -> None:
        self._source = source
        self._quarantine = quarantine
        self._places: dict[tuple[int, int], int] = {}
        """(seed, position) -> position in the source, for positions at which iteration stopped. They never change."""

    def tasks(self, seed: int, start: int = 0) -> Iterator[Task]:
        """See `TaskSource`."""
        position, place = self._nearest(seed, start)
        skipped = 0
        for found, task in enumerate(self._source.tasks(seed, place), start=place):
            if self._quarantine.holds(task.task_id, position):
                skipped += 1
                self._require_some_left(skipped)
                continue
            skipped = 0
            position += 1
            if position <= start:  # before the requested start
                continue
            self._quarantine.drawn = max(self._quarantine.drawn, position)
            self._places[seed, position] = found + 1
            self._places.pop((seed, position - 1), None)
            yield task

    def _nearest(self, seed: int, start: int) -> tuple[int, int]:
        """Return the last known position up to `start`, and its position in the source."""
        known = [
            (position, place) for (of, position), place in self._places.items() if of == seed and position <= start
        ]
        return max(known, default=(0, 0))

    def _require_some_left(self, skipped: int) -> None:
        # Each epoch of a finite source has every task once, in a new order: after more skips no task can be left.
        if skipped > 2 * len(self._quarantine):
            raise ConfigError(
                f"all tasks are in quarantine ({len(self._quarantine)}). See quarantine.jsonl in the run folder."
            )

"""Tasks that are not to be trained on, and a source that leaves them out."""

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
    """Task id -> why and since when, in a file of JSON lines that grows."""

    def __init__(self, path: Path) -> None:
        """Reads what a run before has written there."""
        self._path = path
        self.reasons: dict[str, str] = {}
        self._since: dict[str, int] = {}
        self.drawn = 0
        """Positions of the data stream that have been given out; a task that is put in is left out from there on."""
        if path.is_file():
            for line in path.read_text().splitlines():
                try:
                    row = json.loads(line)
                    self.reasons[str(row["task_id"])] = str(row["reason"])
                    self._since[str(row["task_id"])] = int(row.get("since", 0))
                except (ValueError, KeyError, TypeError, AttributeError):
                    continue  # a line that a killed run has half written

    def __contains__(self, task_id: str) -> bool:
        return task_id in self.reasons

    def __len__(self) -> int:
        return len(self.reasons)

    def holds(self, task_id: str, position: int) -> bool:
        """Return whether the task is skipped at this position of the stream."""
        return self._since.get(task_id, position + 1) <= position

    def add(self, task_id: str, reason: str, detail: str = "") -> None:
        """Put a task in, once."""
        if task_id in self.reasons:
            return
        self.reasons[task_id] = reason
        self._since[task_id] = self.drawn
        log.warning("task %s is in quarantine: %s %s", task_id, reason, detail[:200])
        with self._path.open("a") as file:
            row = {"task_id": task_id, "reason": reason, "since": self.drawn, "detail": detail}
            file.write(json.dumps(row) + "\n")


class Unquarantined:
    """Another source without the tasks that are in quarantine: those behind them move up, so that none is repeated.

    The stream is a function of seed, position and quarantine alone: a task is left out only from the position on at which it was
    put in, so what was given out before keeps its place, in this process and in one that resumes.
    """

    def __init__(self, source: TaskSource, quarantine: Quarantine) -> None:
        self._source = source
        self._quarantine = quarantine
        self._places: dict[tuple[int, int], int] = {}
        """(seed, position) -> position in the source, for positions at which the stream was left. They never change."""

    def tasks(self, seed: int, start: int = 0) -> Iterator[Task]:
        """See TaskSource."""
        position, place = self._nearest(seed, start)
        skipped = 0
        for found, task in enumerate(self._source.tasks(seed, place), start=place):
            if self._quarantine.holds(task.task_id, position):
                skipped += 1
                self._require_some_left(skipped)
                continue
            skipped = 0
            position += 1
            if position <= start:  # on the way to it
                continue
            self._quarantine.drawn = max(self._quarantine.drawn, position)
            self._places[seed, position] = found + 1
            self._places.pop((seed, position - 1), None)
            yield task

    def _nearest(self, seed: int, start: int) -> tuple[int, int]:
        """The last known position that is not behind `start`, and its place in the source."""
        known = [
            (position, place) for (of, position), place in self._places.items() if of == seed and position <= start
        ]
        return max(known, default=(0, 0))

    def _require_some_left(self, skipped: int) -> None:
        # Each epoch of a finite source has every task once, in an order of its own: more in a row cannot be in quarantine.
        if skipped > 2 * len(self._quarantine):
            raise ConfigError(
                f"all tasks are in quarantine ({len(self._quarantine)}); the run folder's quarantine.jsonl says why"
            )

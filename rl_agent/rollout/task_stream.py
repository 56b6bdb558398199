"""The tasks of a seed by position in the data stream, for access in roughly ascending order."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.tasks.source import TaskSource
    from rl_agent.tasks.task import Task


class TaskStream:
    """Task stream that continues at its position. Restarting it can mean reading a permutation of a million rows."""

    def __init__(self, source: TaskSource, seed: int) -> None:
        self._source = source
        self._seed = seed
        self._next = -1
        self._tasks: Iterator[Task] = iter(())

    def at(self, position: int) -> Task:
        """Return the task at a position."""
        if position != self._next:
            self._tasks = self._source.tasks(self._seed, position)
        (task,) = itertools.islice(self._tasks, 1)
        self._next = position + 1
        return task

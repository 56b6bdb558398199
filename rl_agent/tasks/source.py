"""The contract of task sources: an ordered, endless, seekable stream of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.tasks.task import Task


class TaskSource(Protocol):
    """Where tasks come from. Built from config (`data._target_`); its constructor takes exactly the fields of its schema."""

    def tasks(self, seed: int, start: int = 0) -> Iterator[Task]:
        """The stream of `seed` from position `start` on. The same arguments give the same tasks, in any process.

        Raises ConfigError for data that cannot be read, naming file and line.
        """

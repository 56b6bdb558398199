"""Contract of task sources: ordered, endless, seekable streams of tasks."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from rl_agent.tasks.task import Task


class TaskSource(Protocol):
    """Source of tasks. Built by `DataConfig.build`."""

    def tasks(self, seed: int, start: int = 0) -> Iterator[Task]:
        """Return the stream of `seed` from position `start`. Equal arguments give equal tasks in any process.

        Raises ConfigError with file and line for unreadable data.
        """


@runtime_checkable
class FiniteTaskSource(TaskSource, Protocol):
    """Source with a finite number of tasks."""

    def once(self) -> Iterator[Task]:
        """Return every task once, in the order of the data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """A known trajectory."""

    tokens: npt.NDArray[np.int32]
    """[T] int32."""
    sampled: npt.NDArray[np.bool_]
    """[T] bool: true for tokens that the policy would sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAnswers:
    """Known trajectories of a held-out task."""

    right: Demonstration
    wrong: Sequence[Demonstration]
    """Plausible mistakes."""


class Demonstrator(Protocol):
    """Source of correct trajectories for its tasks, token for token. Built by `DataConfig.build_demonstrator`."""

    def held_out(self, model_folder: Path) -> Sequence[KnownAnswers]:
        """Return the answers of a fixed set of tasks that are never generated for training."""

    def demonstrations(self, model_folder: Path, seed: int, right_share: float) -> Iterator[Demonstration]:
        """Return an endless stream of demonstrations. A share `right_share` is right, the rest plausible mistakes."""


def first_tasks(source: TaskSource, seed: int, limit: int | None, *, of_endless: int) -> Iterator[Task]:
    """Return the tasks of a job that runs each task once: at most `limit` of them.

    Without a `limit`: all tasks of a finite source, `of_endless` tasks of an endless one.
    """
    if isinstance(source, FiniteTaskSource):
        return itertools.islice(source.once(), limit)
    return itertools.islice(source.tasks(seed), limit or of_endless)

"""Which rollouts a sampling job consists of, and which of them are written down already.

A run folder of job=rollout or job=evaluate has the records of training: `rollouts/step_<n>.jsonl` and `.safetensors`, here with
`rollout.tasks_per_step` tasks a file. What is finished of a file that is not complete lies in `buffer/`, so that a run that is killed
loses only what was running.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rl_agent.config.rollout import SaveRollouts
from rl_agent.errors import ConfigError
from rl_agent.rollout import records
from rl_agent.rollout.failures import broken_by
from rl_agent.rollout.group import Group, Rollout, rollout_id
from rl_agent.rollout.resume import place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rl_agent.config.schema import Config
    from rl_agent.tasks.source import TaskSource
    from rl_agent.tasks.task import Task

ENDLESS_TASKS: Final = 64
"""Of a source without end, where the config names no number: the size of the toys' held-out set."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """One rollout of the job."""

    position: int
    """Of its task, from 0."""
    member: int
    """Among the rollouts of its task, from 0."""

    @classmethod
    def of(cls, rollout: Rollout) -> Place:
        """The place of a recorded rollout. Raises ValueError for an id of another form."""
        return cls(*place(rollout.rollout_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """All places of a job: each of `tasks` tasks is run `members` times; `per_file` tasks share a file."""

    tasks: int
    members: int
    per_file: int

    @property
    def files(self) -> int:
        """Number of record files."""
        return -(-self.tasks // self.per_file)

    def file(self, position: int) -> int:
        """The number of a task's file, from 1."""
        return position // self.per_file + 1

    def places(self, file: int) -> list[Place]:
        """What belongs into a file, in order."""
        first = (file - 1) * self.per_file
        positions = range(first, min(first + self.per_file, self.tasks))
        return [Place(position, member) for position in positions for member in range(self.members)]


def tasks_of(source: TaskSource, config: Config, limit: int | None) -> tuple[int, Iterator[Task]]:
    """How many tasks, and the tasks: each of a finite source once, else the first of the stream of `seed`.

    `limit` None: all of a finite source, ENDLESS_TASKS of another. Raises ConfigError where there is none.
    """
    once = getattr(source, "once", None)
    if once is None:
        count = limit or ENDLESS_TASKS
        return count, itertools.islice(source.tasks(config.seed), count)
    count = sum(1 for _ in itertools.islice(once(), limit))
    if not count:
        raise ConfigError("the data has no task")
    return count, itertools.islice(once(), count)


@dataclass(slots=True)
class Recorded:
    """The records of a sampling job, on disk and of files that are not complete."""

    folder: Path
    """`RunFolder.rollouts`."""
    buffer: Path
    """`RunFolder.buffer`."""
    plan: Places
    done: dict[Place, Rollout] = field(default_factory=dict)
    """Finished rollouts of files that are not closed."""
    next_file: int = 1
    """Files before this one are closed, and not held in memory."""

    def load(self) -> None:
        """Find what a run before has finished. What infrastructure broke does not count: it is run again."""
        for number in records.recorded_steps(self.folder):
            self._take(records.load_rollouts(self.folder, number))
            self._pass_complete()
        self._take([records.load_one(self.buffer, path.stem) for path in sorted(self.buffer.glob("*.jsonl"))])

    def keep(self, rollout: Rollout) -> None:
        """Write a finished rollout down."""
        self.done[Place.of(rollout)] = rollout
        records.save_one(self.buffer, rollout)

    def close(self, tasks: Sequence[Task]) -> list[Group] | None:
        """The groups of the next file, written, if all their rollouts are finished. `tasks`: those of the file."""
        places = self.plan.places(self.next_file)
        if not places or not all(one in self.done for one in places):
            return None
        groups = [
            Group(
                group_id=self.done[members[0]].group_id,
                task=task,
                rollouts=tuple(self.done[one] for one in members),
            )
            for task, members in zip(tasks, _batched(places, self.plan.members), strict=True)
        ]
        records.save(self.folder, self.next_file, groups, SaveRollouts.all)
        for one in places:
            records.remove_one(self.buffer, rollout_id(one.position, one.member))
            del self.done[one]
        self.next_file += 1
        return groups

    def _take(self, rollouts: Sequence[Rollout]) -> None:
        for rollout in rollouts:
            one = Place.of(rollout)
            if broken_by(rollout) is None and one.position < self.plan.tasks and one.member < self.plan.members:
                self.done[one] = rollout

    def _pass_complete(self) -> None:
        while (places := self.plan.places(self.next_file)) and all(one in self.done for one in places):
            for one in places:
                del self.done[one]
            self.next_file += 1


def _batched(places: Sequence[Place], size: int) -> Iterator[Sequence[Place]]:
    return (places[start : start + size] for start in range(0, len(places), size))

"""Which rollouts a sampling job consists of, and which of them are written down already.

A run folder of job=rollout or job=evaluate has the records of training: `rollouts/step_<n>.jsonl` and `.safetensors`, here with
`rollout.tasks_per_step` tasks a file. What is finished of a file that is not complete lies in `rollouts/open/`, a folder a rollout, so that
a run that is killed loses only what was running.
"""

from __future__ import annotations

import itertools
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rl_agent.config.rollout import SaveRollouts
from rl_agent.errors import ConfigError
from rl_agent.graders.base import VerdictStatus
from rl_agent.rollout import records
from rl_agent.rollout.group import RETRIED, EpisodeRequest, Group, Rollout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rl_agent.config.schema import Config
    from rl_agent.tasks.source import TaskSource
    from rl_agent.tasks.task import Task

ENDLESS_TASKS: Final = 64
"""Of a source without end, where the config names no number: the size of the toys' held-out set."""
_OPEN: Final = "open"


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """One rollout of the job."""

    position: int
    """Of its task, from 0."""
    member: int
    """Among the rollouts of its task, from 0."""

    @property
    def group_id(self) -> str:
        """The task's place, as records name it."""
        return f"{self.position:05d}-000"

    def request(self, task: Task, *, attempt: int = 0, greedy: bool = False) -> EpisodeRequest:
        """The order to run it."""
        return EpisodeRequest(
            task=task,
            group_id=self.group_id,
            rollout_id=f"{self.group_id}-{self.member:02d}",
            attempt=attempt,
            greedy=greedy,
        )

    @classmethod
    def of(cls, rollout: Rollout) -> Place:
        """The place of a recorded rollout. Raises ValueError for an id of another form."""
        position, _, member = (int(part) for part in rollout.rollout_id.split("-"))
        return cls(position, member)


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


def broken(rollout: Rollout) -> bool:
    """Whether infrastructure, not the task or the agent, kept it from a result: it has none, and deserves another run."""
    verdict = rollout.verdict
    if verdict is None:
        return rollout.abort in RETRIED
    return verdict.status is VerdictStatus.INFRA_ERROR and not verdict.metadata.get("setup_failed")


@dataclass(slots=True)
class Recorded:
    """The records of a sampling job, on disk and of files that are not complete."""

    folder: Path
    """`RunFolder.rollouts`."""
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
        for path in sorted((self.folder / _OPEN).glob("*/step_*.jsonl")):
            self._take(records.load_rollouts(path.parent, 1))

    def keep(self, task: Task, rollout: Rollout) -> None:
        """Write a finished rollout down."""
        self.done[Place.of(rollout)] = rollout
        group = Group(group_id=rollout.group_id, task=task, rollouts=(rollout,))
        records.save(self.folder / _OPEN / rollout.rollout_id, 1, [group], SaveRollouts.all)

    def close(self, tasks: Sequence[Task]) -> list[Group] | None:
        """The groups of the next file, written, if all their rollouts are finished. `tasks`: those of the file."""
        places = self.plan.places(self.next_file)
        if not places or not all(place in self.done for place in places):
            return None
        groups = [
            Group(
                group_id=members[0].group_id,
                task=task,
                rollouts=tuple(self.done[place] for place in members),
            )
            for task, members in zip(tasks, _batched(places, self.plan.members), strict=True)
        ]
        records.save(self.folder, self.next_file, groups, SaveRollouts.all)
        for place in places:
            shutil.rmtree(self.folder / _OPEN / self.done.pop(place).rollout_id, ignore_errors=True)
        self.next_file += 1
        return groups

    def _take(self, rollouts: Sequence[Rollout]) -> None:
        for rollout in rollouts:
            place = Place.of(rollout)
            if not broken(rollout) and place.position < self.plan.tasks and place.member < self.plan.members:
                self.done[place] = rollout

    def _pass_complete(self) -> None:
        while (places := self.plan.places(self.next_file)) and all(place in self.done for place in places):
            for place in places:
                del self.done[place]
            self.next_file += 1


def _batched(places: Sequence[Place], size: int) -> Iterator[Sequence[Place]]:
    return (places[start : start + size] for start in range(0, len(places), size))

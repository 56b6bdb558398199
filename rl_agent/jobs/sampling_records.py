"""The rollouts of a sampling job, and the records of those that are finished.

The run folder of job=rollout and job=evaluate has the same records as training: `rollouts/step_<n>.jsonl` and
`.safetensors`, with `rollout.tasks_per_step` tasks per file. Finished rollouts of an incomplete file are in `buffer/`,
so a killed run loses only the rollouts that were running.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rl_agent.config.rollout import SaveRollouts
from rl_agent.errors import ConfigError
from rl_agent.rollout import records
from rl_agent.rollout.failures import broken_by
from rl_agent.rollout.group import Group, Rollout, Slot
from rl_agent.tasks.source import FiniteTaskSource, first_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rl_agent.config.schema import Config
    from rl_agent.tasks.source import TaskSource
    from rl_agent.tasks.task import Task

ENDLESS_TASKS: Final = 64
"""Number of tasks from an endless source if the config gives none. It is the size of the toy held-out set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPlan:
    """All rollouts of a job: each of `tasks` tasks runs `members` times, and `per_file` tasks share a record file."""

    tasks: int
    members: int
    per_file: int

    @property
    def files(self) -> int:
        """Number of record files."""
        return -(-self.tasks // self.per_file)

    def file(self, position: int) -> int:
        """Return the number of a task's file, from 1."""
        return position // self.per_file + 1

    def slots(self, file: int) -> list[Slot]:
        """Return the slots of a file in order. A number past the last file has none."""
        first = (file - 1) * self.per_file
        return self._slots(range(first, min(first + self.per_file, self.tasks)))

    def by_rollout_id(self) -> dict[str, Slot]:
        """Return every slot of the job by the id of its rollout."""
        return {slot.rollout_id: slot for slot in self._slots(range(self.tasks))}

    def _slots(self, positions: range) -> list[Slot]:
        return [Slot(position=position, member=member) for position in positions for member in range(self.members)]


def tasks_of(source: TaskSource, config: Config, limit: int | None) -> tuple[int, Iterator[Task]]:
    """Return the number of tasks, and the tasks: all of a finite source once, or the first of an endless one.

    `limit`: maximum number of tasks; None: no limit for a finite source, ENDLESS_TASKS for an endless one. Raises
    ConfigError if there is no task.
    """
    count = limit or ENDLESS_TASKS
    if isinstance(source, FiniteTaskSource):
        count = sum(1 for _ in itertools.islice(source.once(), limit))
    if not count:
        raise ConfigError("data: no tasks found. Check data.path, data.split and the filters.")
    return count, first_tasks(source, config.seed, count, of_endless=count)


@dataclass(slots=True)
class SamplingRecords:
    """Finished rollouts of a sampling job: closed record files, and the buffer of the files still open."""

    folder: Path
    """`RunFolder.rollouts`."""
    buffer: Path
    """`RunFolder.buffer`."""
    plan: SamplingPlan
    done: dict[Slot, Rollout] = field(default_factory=dict)
    """Finished rollouts of open files."""
    next_file: int = 1
    """First open file. Earlier files are closed and not held in memory."""

    def load(self) -> None:
        """Read the rollouts of an earlier run. Those that infrastructure broke do not count and run again."""
        slots = self.plan.by_rollout_id()
        for number in records.recorded_steps(self.folder):
            self._add(records.load_rollouts(self.folder, number), slots)
            self._skip_complete()
        self._add([records.load_one(self.buffer, path.stem) for path in sorted(self.buffer.glob("*.jsonl"))], slots)

    def keep(self, slot: Slot, rollout: Rollout) -> None:
        """Write a finished rollout to the buffer."""
        self.done[slot] = rollout
        records.save_one(self.buffer, rollout)

    def groups(self, tasks: Sequence[Task]) -> list[Group] | None:
        """Return the groups of the next file if all its rollouts are finished. `tasks`: the tasks of the file."""
        slots = self.plan.slots(self.next_file)
        if not slots or not all(slot in self.done for slot in slots):
            return None
        size = self.plan.members
        batches = (slots[start : start + size] for start in range(0, len(slots), size))
        return [
            Group(group_id=members[0].group_id, task=task, rollouts=tuple(self.done[slot] for slot in members))
            for task, members in zip(tasks, batches, strict=True)
        ]

    def close(self, groups: Sequence[Group]) -> None:
        """Write the next file, and remove its rollouts from the buffer."""
        records.save(self.folder, self.next_file, groups, SaveRollouts.all)
        for slot in self.plan.slots(self.next_file):
            records.remove_one(self.buffer, slot.rollout_id)
            del self.done[slot]
        self.next_file += 1

    def _add(self, rollouts: Sequence[Rollout], slots: Mapping[str, Slot]) -> None:
        for rollout in rollouts:
            slot = slots.get(rollout.rollout_id)
            if slot is not None and broken_by(rollout) is None:
                self.done[slot] = rollout

    def _skip_complete(self) -> None:
        while (slots := self.plan.slots(self.next_file)) and all(slot in self.done for slot in slots):
            for slot in slots:
                del self.done[slot]
            self.next_file += 1

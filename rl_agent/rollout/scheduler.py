"""Which rollout may start, and when a step is complete: a pure state machine without clock, tasks or clients.

Step `s` trains on the tasks at positions `[s * tasks_per_step, (s + 1) * tasks_per_step)` of the data stream, `group_size`
rollouts each, and turns weights number `s` into `s + 1`. A rollout of step `s` may start once weights number
`s - max_staleness` are in the engine, so that no token can be staler than that when it trains (law 9).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from rl_agent.errors import LawError


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Slot:
    """The place of one rollout in the data order."""

    step: int
    task: int
    """Position within the step."""
    member: int
    """Position within the group."""
    attempt: int = 0


@dataclass(slots=True, kw_only=True)
class Scheduler:
    """Values in, values out. `admit` until it is empty; report with `finished`, `retry` and `pushed`; take with `complete`."""

    tasks_per_step: int
    group_size: int
    max_concurrent: int
    max_staleness: int
    last_step: int
    """First step that is not run."""
    version: int
    """Weights in the engine; the first step to run has this number."""
    done: frozenset[tuple[int, int, int]] = frozenset()
    """Step, task and member of rollouts that a run before has finished: they are not run again."""
    _running: set[Slot] = field(default_factory=set)
    _waiting: deque[Slot] = field(default_factory=deque)
    _open: dict[int, int] = field(default_factory=dict)
    """Step -> rollouts of it that are not finished."""
    _next_step: int = -1

    def __post_init__(self) -> None:
        self._next_step = self.version

    @property
    def running(self) -> int:
        """Rollouts that were admitted and are not finished."""
        return len(self._running)

    def admit(self) -> list[Slot]:
        """Rollouts to start now, in data order."""
        while self._next_step < self.last_step and self._next_step - self.max_staleness <= self.version:
            step = self._next_step
            open_slots = [
                Slot(step=step, task=task, member=member)
                for task in range(self.tasks_per_step)
                for member in range(self.group_size)
                if (step, task, member) not in self.done
            ]
            self._waiting.extend(open_slots)
            self._open[step] = len(open_slots)
            self._next_step += 1
        admitted = []
        while self._waiting and len(self._running) < self.max_concurrent:
            slot = self._waiting.popleft()
            self._running.add(slot)
            admitted.append(slot)
        return admitted

    def finished(self, slot: Slot) -> None:
        """The rollout is over, for better or worse."""
        self._leave(slot)
        self._open[slot.step] -= 1

    def retry(self, slot: Slot) -> None:
        """The rollout is to be run again, before anything else."""
        self._leave(slot)
        self._waiting.appendleft(Slot(step=slot.step, task=slot.task, member=slot.member, attempt=slot.attempt + 1))

    def complete(self, step: int) -> bool:
        """Whether every rollout of the step is over."""
        return self._open.get(step) == 0

    def pushed(self, version: int) -> None:
        """Weights number `version` are in the engine."""
        if version < self.version:
            raise LawError(f"weights number {version} were pushed after number {self.version}")
        self.version = version

    def _leave(self, slot: Slot) -> None:
        if slot not in self._running:
            raise LawError(f"{slot} is not running: a rollout is reported once")
        self._running.remove(slot)

"""The scheduler decides which rollouts start and stop, and which groups form the next step. It has no clock and no I/O.

A group is the rollouts of the task at one position of the data stream. Groups train in the order of their positions.
The window of step `s` is the first `tasks_per_step + extra_tasks` groups that are neither trained nor given up. The
step takes the first `tasks_per_step` ready groups of its window, and gives up the rest. A group whose rewards are all
equal may be filtered: it leaves the window, and the next positions move up.

Step `s` turns weights number `s` into `s + 1`. The group at place `r` among the remaining groups trains in the step `s`
whose window contains `r`, or earlier, since filtering only moves groups up. It is admitted once the engine has weights
number `s - max_staleness`. So no token is staler than that when it trains (law 9), and no rollout is discarded for
being too old.

Evaluation rollouts run before all others, and belong to no step.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rl_agent.errors import LawError
from rl_agent.rollout.group import NO_EVALUATION, Slot

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Consequences of the end of a rollout."""

    ready: bool
    """True if its group is complete."""
    stop: tuple[Slot, ...] = ()
    """Rollouts that are no longer needed. They count as ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The groups of one training step."""

    number: int
    positions: tuple[int, ...]
    dropped: tuple[int, ...] = ()
    """Groups of the window that are given up, since enough others were ready first."""
    stop: tuple[Slot, ...] = ()
    """Rollouts of dropped groups. They count as ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Results of an earlier run that still count."""

    taken: frozenset[int] = frozenset()
    """Positions that are trained, filtered or dropped."""
    done: frozenset[Slot] = frozenset()
    """Rollouts with a reward. They do not run again."""
    dropped: Mapping[int, int] = field(default_factory=dict)
    """Step -> number of groups of its window already given up."""


@dataclass(slots=True)
class _Group:
    waiting: int
    """Members not yet started."""
    enough: int
    """Number of members with a reward that completes the group."""
    running: set[Slot] = field(default_factory=set)
    resting: int = 0
    """Members that wait for another attempt."""
    rewarded: int = 0

    def complete(self) -> bool:
        return self.rewarded >= self.enough or not (self.waiting or self.running or self.resting)


@dataclass(slots=True, kw_only=True)
class Scheduler:
    """State of the scheduler. Call `admit`, report each admitted slot with `finished` or `rest`, and `take` steps."""

    tasks_per_step: int
    group_size: int
    max_concurrent: int
    max_staleness: int
    last_step: int
    """The first step that does not run."""
    version: int
    """Version of the weights in the engine, and number of the first step to run."""
    extra_tasks: int = 0
    """Groups that a step starts in addition to those it trains on. The last ones to be ready are given up."""
    extra_members: int = 0
    """Rollouts that a group starts in addition to its size. Once enough have a reward, the others are stopped."""
    max_filtered: int | None = None
    """Maximum number of filtered groups per step, or None."""
    history: History = field(default_factory=History)
    limit: int | None = None
    """Current limit on concurrent rollouts below `max_concurrent`. The caller may change it at any time."""
    _groups: dict[int, _Group] = field(default_factory=dict)
    """Admitted groups that are neither taken nor given up, in order of position."""
    _ready: set[int] = field(default_factory=set)
    _evaluating: dict[tuple[int, int], _Group] = field(default_factory=dict)
    _first: deque[Slot] = field(default_factory=deque)
    """Slots ahead of the data order: evaluations and retries."""
    _queue: deque[Slot] = field(default_factory=deque)
    _running: int = 0
    _next_position: int = 0
    _next_step: int = 0
    _filtered: int = 0

    def __post_init__(self) -> None:
        self._next_step = self.version

    @property
    def running(self) -> int:
        """Number of admitted rollouts that have not ended."""
        return self._running

    @property
    def next_step(self) -> int:
        """The first step not yet taken."""
        return self._next_step

    def evaluate(self, tasks: int) -> None:
        """Queue one rollout of each held-out task ahead of everything else. Allowed once per version of the weights."""
        if any(version == self.version for version, _ in self._evaluating):
            raise LawError(f"weights of version {self.version} are already being evaluated")
        for position in range(tasks):
            slot = Slot(position=position, member=0, evaluation=self.version)
            self._evaluating[slot.evaluation, position] = _Group(waiting=1, enough=1)
            self._first.append(slot)

    def admit(self) -> list[Slot]:
        """Return the rollouts to start now."""
        self._open()
        admitted = []
        limit = self.max_concurrent if self.limit is None else min(self.limit, self.max_concurrent)
        while self._running < limit and (self._first or self._queue):
            slot = (self._first or self._queue).popleft()
            group = self._group(slot)
            if group is None or group.complete():  # given up, or complete without this slot
                continue
            if slot.attempt:
                group.resting -= 1
            else:
                group.waiting -= 1
            group.running.add(slot)
            self._running += 1
            admitted.append(slot)
        return admitted

    def finished(self, slot: Slot, *, rewarded: bool) -> Finished:
        """Report that a rollout has ended."""
        group = self._leave(slot)
        group.rewarded += rewarded
        if not group.complete():
            return Finished(ready=False)
        if slot.evaluation == NO_EVALUATION:
            self._ready.add(slot.position)
        else:
            del self._evaluating[slot.evaluation, slot.position]
        return Finished(ready=True, stop=self._stop(group))

    def rest(self, slot: Slot) -> None:
        """Report that a rollout pauses before a retry. It does not count as running until `again`."""
        self._leave(slot).resting += 1

    def again(self, slot: Slot) -> None:
        """Queue the next attempt of a rested rollout, ahead of everything else."""
        self._first.append(slot.next)

    def filter(self, position: int) -> bool:
        """Remove a complete group, so that the next one moves up.

        Return False if the step has filtered too many groups.
        """
        if position not in self._ready:
            raise LawError(f"the group at position {position} is not complete: it cannot be filtered")
        if self.max_filtered is not None and self._filtered >= self.max_filtered:
            return False
        self._filtered += 1
        self._forget(position)
        return True

    def take(self) -> Step | None:
        """Return the next step if enough groups of its window are ready."""
        window = list(itertools.islice(self._groups, self._window(self._next_step)))
        positions = [position for position in window if position in self._ready][: self.tasks_per_step]
        if len(positions) < self.tasks_per_step or self._next_step >= self.last_step:
            return None
        chosen = set(positions)
        dropped = tuple(position for position in window if position not in chosen)
        stop = tuple(slot for position in dropped for slot in self._stop(self._groups[position]))
        for position in window:
            self._forget(position)
        step = Step(number=self._next_step, positions=tuple(positions), dropped=dropped, stop=stop)
        self._next_step += 1
        self._filtered = 0
        return step

    def pushed(self, version: int) -> None:
        """Report that the engine has the weights of `version`."""
        if version < self.version:
            raise LawError(f"weights number {version} were pushed after number {self.version}")
        self.version = version

    def _open(self) -> None:
        """Admit every group for whose step the weights in the engine are recent enough."""
        place = len(self._groups)
        while (step := self._step_at(place)) < self.last_step and step - self.max_staleness <= self.version:
            position = self._next_position
            self._next_position += 1
            if position in self.history.taken:
                continue
            members = range(self.group_size + self.extra_members)
            every = [Slot(position=position, member=member) for member in members]
            slots = [slot for slot in every if slot not in self.history.done]
            group = _Group(waiting=len(slots), enough=self.group_size, rewarded=len(members) - len(slots))
            self._groups[position] = group
            if group.complete():
                self._ready.add(position)
            else:
                self._queue.extend(slots)
            place += 1

    def _step_at(self, place: int) -> int:
        """Return the latest step in which a group with `place` others before it trains."""
        step = self._next_step
        while step < self.last_step and place >= self._window(step):
            place -= self._window(step)
            step += 1
        return step

    def _window(self, step: int) -> int:
        return self.tasks_per_step + max(0, self.extra_tasks - self.history.dropped.get(step, 0))

    def _group(self, slot: Slot) -> _Group | None:
        if slot.evaluation == NO_EVALUATION:
            return self._groups.get(slot.position)
        return self._evaluating.get((slot.evaluation, slot.position))

    def _leave(self, slot: Slot) -> _Group:
        group = self._group(slot)
        if group is None or slot not in group.running:
            raise LawError(f"{slot} is not running: each rollout may be reported only once")
        group.running.remove(slot)
        self._running -= 1
        return group

    def _stop(self, group: _Group) -> tuple[Slot, ...]:
        stopped = tuple(sorted(group.running))
        self._running -= len(stopped)
        group.running.clear()
        group.waiting = 0
        return stopped

    def _forget(self, position: int) -> None:
        del self._groups[position]
        self._ready.discard(position)

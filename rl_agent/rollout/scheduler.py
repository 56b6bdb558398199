"""Which rollout may start, which must stop, and which groups make the next step: a pure state machine without clock, tasks or clients.

A group is the rollouts of the task at one position of the data stream. Groups train in the order of their positions. The
window of step `s` is the first `tasks_per_step + extra_tasks` groups that are neither trained nor given up; the step takes the first
`tasks_per_step` of them that are ready, once so many are, and gives up the rest. A group whose rewards are all equal may be filtered: it leaves its window,
and the next position moves up.

Step `s` turns weights number `s` into `s + 1`. A group at place `r` of those that are left trains in the step whose window holds
`r`, or sooner: filtering only moves groups up. It is admitted once weights number `s - max_staleness` of that step `s` are in the engine, so no token
can be staler than that when it trains (law 9), and nothing has to be thrown away for being too old.

Rollouts of an evaluation go before all others, and belong to no step.
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
    """What the end of a rollout brings about."""

    ready: bool
    """Its group is complete now."""
    stop: tuple[Slot, ...] = ()
    """Rollouts that nobody needs any more. They count as gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The groups of one training step."""

    number: int
    positions: tuple[int, ...]
    dropped: tuple[int, ...] = ()
    """Groups of the window that were given up because enough others were ready sooner."""
    stop: tuple[Slot, ...] = ()
    """Rollouts of dropped groups. They count as gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a run before has done, as far as it still counts."""

    taken: frozenset[int] = frozenset()
    """Positions that are trained, filtered or dropped."""
    done: frozenset[Slot] = frozenset()
    """Rollouts with a reward. They do not run again."""
    dropped: Mapping[int, int] = field(default_factory=dict)
    """Step -> groups of its window that were given up already."""


@dataclass(slots=True)
class _Group:
    waiting: int
    """Members that were never started."""
    enough: int
    """Members with a reward that make it complete."""
    running: set[Slot] = field(default_factory=set)
    resting: int = 0
    """Members that wait for another attempt."""
    rewarded: int = 0

    def complete(self) -> bool:
        return self.rewarded >= self.enough or not (self.waiting or self.running or self.resting)


@dataclass(slots=True, kw_only=True)
class Scheduler:
    """Values in, values out. `admit` until it is empty; report every admitted slot with `finished` or `rest`; `take` steps."""

    tasks_per_step: int
    group_size: int
    max_concurrent: int
    max_staleness: int
    last_step: int
    """First step that is not run."""
    version: int
    """Weights in the engine; the first step to run has this number."""
    extra_tasks: int = 0
    """Groups that a step starts beyond those it trains on; the last ones to be ready are given up."""
    extra_members: int = 0
    """Rollouts that a group starts beyond its size; once enough have a reward, the others are stopped."""
    max_filtered: int | None = None
    """Groups that may be filtered for one step; None: any number."""
    history: History = field(default_factory=History)
    limit: int | None = None
    """Rollouts at the same time, if fewer than `max_concurrent`: the caller may change it at any moment."""
    _groups: dict[int, _Group] = field(default_factory=dict)
    """Admitted groups that are neither taken nor given up, in order of position."""
    _ready: set[int] = field(default_factory=set)
    _evaluating: dict[tuple[int, int], _Group] = field(default_factory=dict)
    _first: deque[Slot] = field(default_factory=deque)
    """What goes before the data order: evaluations, and what is tried again."""
    _queue: deque[Slot] = field(default_factory=deque)
    _running: int = 0
    _next_position: int = 0
    _next_step: int = 0
    _filtered: int = 0

    def __post_init__(self) -> None:
        self._next_step = self.version

    @property
    def running(self) -> int:
        """Rollouts that were admitted and are not over."""
        return self._running

    @property
    def next_step(self) -> int:
        """The first step that is not taken."""
        return self._next_step

    def evaluate(self, tasks: int) -> None:
        """Run each of so many held-out tasks once, before anything else. Once for each version of the weights."""
        if any(version == self.version for version, _ in self._evaluating):
            raise LawError(f"weights number {self.version} are being evaluated already")
        for position in range(tasks):
            slot = Slot(position=position, member=0, evaluation=self.version)
            self._evaluating[slot.evaluation, position] = _Group(waiting=1, enough=1)
            self._first.append(slot)

    def admit(self) -> list[Slot]:
        """Rollouts to start now."""
        self._open()
        admitted = []
        limit = self.max_concurrent if self.limit is None else min(self.limit, self.max_concurrent)
        while self._running < limit and (self._first or self._queue):
            slot = (self._first or self._queue).popleft()
            group = self._group(slot)
            if group is None or group.complete():
                continue  # given up, or complete without it
            if slot.attempt:
                group.resting -= 1
            else:
                group.waiting -= 1
            group.running.add(slot)
            self._running += 1
            admitted.append(slot)
        return admitted

    def finished(self, slot: Slot, *, rewarded: bool) -> Finished:
        """The rollout is over, for better or worse."""
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
        """The rollout is to be tried again, but not at once: until `again` it takes no place."""
        self._leave(slot).resting += 1

    def again(self, slot: Slot) -> None:
        """Queue the next attempt of a rested rollout, ahead of everything else."""
        self._first.append(slot.next)

    def filter(self, position: int) -> bool:
        """Take a complete group out, for the next one to move up; False if the step has filtered too many: it trains as it is."""
        if position not in self._ready:
            raise LawError(f"the group at position {position} is not complete: it cannot be filtered")
        if self.max_filtered is not None and self._filtered >= self.max_filtered:
            return False
        self._filtered += 1
        self._forget(position)
        return True

    def take(self) -> Step | None:
        """The next step, once enough groups of its window are ready."""
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
        """Weights number `version` are in the engine."""
        if version < self.version:
            raise LawError(f"weights number {version} were pushed after number {self.version}")
        self.version = version

    def _open(self) -> None:
        """Let in every group whose step the weights in the engine are young enough for."""
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
        """The step that a group trains in at the latest which has so many others before it."""
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
            raise LawError(f"{slot} is not running: a rollout is reported once")
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

"""Driver of rollouts: starts, stops and retries episodes for the scheduler, keeps the ledger, and returns steps."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rl_agent.rollout.attempts import run_episode_attempts
from rl_agent.rollout.group import NO_EVALUATION, EpisodeRequest, Group, Rollout, Slot
from rl_agent.rollout.ledger import Event
from rl_agent.rollout.task_stream import TaskStream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from rl_agent.rollout.buffer import Buffer
    from rl_agent.rollout.failures import FailurePolicy
    from rl_agent.rollout.ledger import RolloutLedger
    from rl_agent.rollout.scheduler import Scheduler
    from rl_agent.tasks.source import TaskSource
    from rl_agent.tasks.task import Task


log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Counts:
    """Counts since the last step."""

    filtered: int = 0
    stopped: int = 0
    finished: int = 0


@dataclass(slots=True, kw_only=True)
class Records:
    """Places to which the driver writes."""

    ledger: RolloutLedger
    buffer: Buffer
    on_rollout: Callable[[Rollout], None]
    """Called with every rollout that counts for a step when it ends."""


@dataclass(slots=True)
class _Resting:
    task: asyncio.Task[None]
    admitted: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True, kw_only=True)
class _Evaluation:
    tasks: Sequence[Task]
    rollouts: dict[int, Rollout] = field(default_factory=dict)


class Driver:
    """Driver of a scheduler. Use `async with asyncio.TaskGroup() as tasks: driver = Driver(..., tasks=tasks)`.

    Episodes run in that task group. Cancelling it (the run ends, an internal error) cancels all of them.
    """

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        source: TaskSource,
        seed: int,
        failures: FailurePolicy,
        records: Records,
        run_episode: Callable[[EpisodeRequest], Awaitable[Rollout]],
        tasks: asyncio.TaskGroup,
        drop: Callable[[Sequence[Rollout]], str | None] = lambda _: None,
        done: Mapping[Slot, Rollout] | None = None,
    ) -> None:
        """`drop`: returns the reason why a complete group must not train, or None.

        `done`: finished rollouts, see `History.done`.
        """
        self._scheduler = scheduler
        self._stream = TaskStream(source, seed)
        self._failures = failures
        self._records = records
        self._run_episode = run_episode
        self._tasks = tasks
        self._drop = drop
        self._known: dict[int, Task] = {}
        """Position -> task, for groups that have started."""
        self._done: dict[int, dict[int, Rollout]] = {}
        """Position -> member -> finished rollout."""
        self._episodes: dict[Slot, asyncio.Task[None]] = {}
        """Running attempts."""
        self._resting: dict[Slot, _Resting] = {}
        """Slot of the next attempt -> the rollout that waits for it."""
        self._alive: set[asyncio.Task[None]] = set()
        """All tasks: one per rollout, over all its attempts."""
        self._cap: int | None = None
        self._evaluations: dict[int, _Evaluation] = {}
        self._counts = _Counts()
        self._changed = asyncio.Event()
        for slot, rollout in (done or {}).items():
            self._done.setdefault(slot.position, {})[slot.member] = rollout
            records.on_rollout(rollout)

    async def groups(self, step: int) -> list[Group]:
        """Wait until enough groups of the step's window are complete, and return them.

        Call it for each step in order.
        """
        if step != self._scheduler.next_step:
            raise ValueError(f"step {step} is out of order: step {self._scheduler.next_step} is next")
        self.admit()
        while (taken := self._scheduler.take()) is None:
            self._changed.clear()
            await self._changed.wait()
        self._records.ledger.consumed(taken)
        self._stop(taken.stop)
        for position in taken.dropped:
            self._discard(position)
        return [self._group(position) for position in taken.positions]

    def pushed(self, version: int) -> None:
        """Report that the engine has new weights, and start the rollouts that this admits."""
        self._scheduler.pushed(version)
        self.admit()

    def flush(self) -> None:
        """Wait until the ledger is on disk. Resuming from a checkpoint requires it."""
        self._records.ledger.flush()

    def saved(self, step: int) -> None:
        """Report that a checkpoint holds all steps before `step`, and discard their rollouts from the buffer."""
        ledger = self._records.ledger
        before = dict(ledger.state.finished)
        ledger.saved(step)
        held = before.keys() - ledger.state.finished.keys()
        self._records.buffer.discard(
            Slot(position=position, member=member).rollout_id for position in held for member in before[position]
        )

    def limit(self, limit: int | None) -> None:
        """Limit the number of concurrent rollouts.

        Running ones continue. Regular calls also detect the end of an outage.
        """
        self._cap = limit
        self.admit()

    def admit(self) -> None:
        """Start all admitted rollouts. Raises InfraError if an outage lasts too long."""
        self._scheduler.limit = self._limit()
        for slot in self._scheduler.admit():
            self._failures.started()
            self._records.ledger.admitted(slot, self._scheduler.version)
            if (resting := self._resting.pop(slot, None)) is not None:
                self._episodes[slot] = resting.task
                resting.admitted.set()
                continue
            task = self._episodes[slot] = self._tasks.create_task(self._run(slot), name=f"episode {slot}")
            self._alive.add(task)
            task.add_done_callback(self._alive.discard)

    async def evaluate(self, held_out: Sequence[Task]) -> list[tuple[Task, Rollout]]:
        """Run one rollout of each held-out task, ahead of all others.

        Tokens record weights that are pushed meanwhile.
        """
        version = self._scheduler.version
        evaluation = self._evaluations[version] = _Evaluation(tasks=held_out)
        self._scheduler.evaluate(len(held_out))
        self.admit()
        while len(evaluation.rollouts) < len(held_out):
            self._changed.clear()
            await self._changed.wait()
        del self._evaluations[version]
        return [(task, evaluation.rollouts[position]) for position, task in enumerate(held_out)]

    def metrics(self) -> dict[str, float]:
        """Return the metrics since the last call."""
        counts, self._counts = self._counts, _Counts()
        ended = counts.finished + counts.stopped
        return {
            "scheduler/running": float(self._scheduler.running),
            "scheduler/stopped_rollouts": float(counts.stopped),
            "scheduler/filtered_groups": float(counts.filtered),
            "scheduler/ahead": float(sum(len(members) for members in self._done.values())),
            "scheduler/stopped_share": counts.stopped / ended if ended else 0.0,
        } | self._failures.metrics(self._now())

    @property
    def running(self) -> int:
        """Number of running rollouts."""
        return self._scheduler.running

    def close(self) -> None:
        """Cancel all running and resting rollouts."""
        for task in list(self._alive):
            task.cancel()

    async def _run(self, slot: Slot) -> None:
        """Run a rollout, over all its attempts."""
        request = self._request(slot)
        request, rollout = await run_episode_attempts(request, self._run_episode, self._failures, self._rest)
        await self._finish(request.slot, rollout)
        self._episodes.pop(request.slot, None)
        self._changed.set()
        self.admit()

    async def _rest(self, request: EpisodeRequest, rollout: Rollout, pause_s: float) -> None:
        """Give the slot back, pause, then wait until the scheduler admits the next attempt."""
        log.info("%s: %s (%s); again in %.0f s", rollout.rollout_id, rollout.status, rollout.detail, pause_s)
        self._records.ledger.ended(request.slot, Event.FAILED, rollout.status)
        self._scheduler.rest(request.slot)
        resting = self._resting[request.slot.next] = _Resting(self._episodes.pop(request.slot))
        self.admit()
        await asyncio.sleep(pause_s)
        self._scheduler.again(request.slot)
        self._changed.set()
        self.admit()
        await resting.admitted.wait()

    async def _finish(self, slot: Slot, rollout: Rollout) -> None:
        """Save the rollout, then enter it into the ledger. There is no await between the entry and its consequences."""
        training = slot.evaluation == NO_EVALUATION
        rewarded = rollout.reward is not None
        if training and rewarded:
            await self._records.buffer.put(rollout)
        self._records.ledger.ended(slot, Event.FINISHED, rollout.status)
        finished = self._scheduler.finished(slot, rewarded=rewarded)
        if not training:
            self._evaluations[slot.evaluation].rollouts[slot.position] = rollout
            return
        self._counts.finished += 1
        self._done.setdefault(slot.position, {})[slot.member] = rollout
        self._records.on_rollout(rollout)
        self._stop(finished.stop)
        if finished.ready:
            self._end_resting(slot.position)
            self._filter(slot.position)

    def _filter(self, position: int) -> None:
        """Remove a complete group if it is not worth training, unless the step has filtered too many."""
        reason = self._drop(list(self._done[position].values()))
        if reason is not None and self._scheduler.filter(position):
            self._counts.filtered += 1
            self._records.ledger.filtered(position, reason)
            self._discard(position)

    def _stop(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            self._counts.stopped += 1
            self._records.ledger.ended(slot, Event.STOPPED)
            self._episodes.pop(slot).cancel()

    def _end_resting(self, position: int) -> None:
        """End the retries of a group that no longer needs them."""
        for slot in [slot for slot in self._resting if slot.position == position and slot.evaluation == NO_EVALUATION]:
            self._resting.pop(slot).task.cancel()

    def _discard(self, position: int) -> None:
        """Forget the rollouts of a group that does not train."""
        self._end_resting(position)
        members = self._done.pop(position, {})
        self._known.pop(position, None)
        self._records.buffer.discard(Slot(position=position, member=member).rollout_id for member in members)

    def _group(self, position: int) -> Group:
        """Return a complete group, without the surplus rollouts that have a reward."""
        task = self._task(position)
        members = self._done.pop(position)
        self._known.pop(position, None)
        rewarded = [member for member in sorted(members) if members[member].reward is not None]
        extra = set(rewarded[self._scheduler.group_size :])
        chosen = tuple(members[member] for member in sorted(members) if member not in extra)
        return Group(group_id=Slot(position=position, member=0).group_id, task=task, rollouts=chosen)

    def _request(self, slot: Slot) -> EpisodeRequest:
        if slot.evaluation == NO_EVALUATION:
            task = self._task(slot.position)
        else:
            task = self._evaluations[slot.evaluation].tasks[slot.position]
        return EpisodeRequest(task=task, slot=slot)

    def _task(self, position: int) -> Task:
        if position not in self._known:
            self._known[position] = self._stream.at(position)
        return self._known[position]

    def _limit(self) -> int | None:
        more = self._failures.limit(self._now())
        if more is None:
            return self._cap
        allowed = self._scheduler.running + more
        return allowed if self._cap is None else min(allowed, self._cap)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

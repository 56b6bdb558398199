"""Whatever happens in whatever order (finish, fail, push, pause, crash, resume), the scheduler and the ledger keep what they promise.

The machine below is a run without clock, processes or policy: scheduler, ledger, and a buffer that a crash leaves behind.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.rollout.group import NO_EVALUATION, Rollout, Slot
from rl_agent.rollout.ledger import Event, RolloutLedger
from rl_agent.rollout.resume import Shape, restore
from rl_agent.rollout.scheduler import Scheduler
from rl_agent.tasks.task import EvalCmdSpec, Task
from rl_agent.tokens.segment import Segment, SegmentKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LAST_STEP = 5


class Numbers:
    """Tasks that are called by their position."""

    def tasks(self, seed: int, start: int = 0) -> Iterator[Task]:
        for i in itertools.count(start):
            yield Task(
                task_id=str(i), problem_statement="", image="host", workdir="/w", grader=EvalCmdSpec(eval_cmd="true")
            )


class Kept(dict[str, Rollout]):
    """The buffer's surface over a dictionary."""

    def load(self, name: str) -> Rollout | None:
        return self.get(name)

    def discard(self, names: Iterable[str]) -> None:
        for name in names:
            self.pop(name, None)

    def keep_only(self, names: Iterable[str]) -> None:
        kept = set(names)
        self.discard([name for name in self if name not in kept])


def rollout(slot: Slot, version: int, *, rewarded: bool) -> Rollout:
    one = Segment(
        kind=SegmentKind.MAIN,
        tokens=np.zeros(2, dtype=np.int32),
        loss_mask=np.array([False, True]),
        rollout_logprobs=np.zeros(2, dtype=np.float32),
        weight_versions=np.full(2, version, dtype=np.int32),
    )
    status = VerdictStatus.SOLVED if rewarded else VerdictStatus.INFRA_ERROR
    return Rollout(
        rollout_id=slot.rollout_id,
        group_id=slot.group_id,
        task_id=str(slot.position),
        attempt=slot.attempt,
        verdict=Verdict(status=status, reward=1.0 if rewarded else None),
        segments=(one,),
    )


class Run(RuleBasedStateMachine):
    @initialize(
        tasks=st.integers(1, 3),
        group=st.integers(1, 3),
        concurrent=st.integers(1, 9),
        staleness=st.integers(0, 3),
        extra_tasks=st.integers(0, 2),
        extra_members=st.integers(0, 1),
        filtered=st.integers(0, 3),
    )
    def begin(self, **sizes: int) -> None:
        self.sizes = sizes
        self.folder = tempfile.TemporaryDirectory()
        self.buffer = Kept()
        self.trained: dict[int, dict[int, list[tuple[int, int]]]] = {}
        """Step -> position -> version at the start and member of what was trained, in the weights of now."""
        self.saved = 0
        self.orders: dict[int, tuple[int, ...]] = {}
        self.start(0)

    def start(self, version: int) -> None:
        sizes = self.sizes
        self.ledger = RolloutLedger(Path(self.folder.name) / "ledger.jsonl")
        shape = Shape(
            first_step=version,
            tasks_per_step=sizes["tasks"],
            members=sizes["group"] + sizes["extra_members"],
            max_staleness=sizes["staleness"],
        )
        restored = restore(self.ledger, self.buffer, Numbers(), seed=0, shape=shape)  # type: ignore[arg-type]
        self.plan = Scheduler(
            tasks_per_step=sizes["tasks"],
            group_size=sizes["group"],
            max_concurrent=sizes["concurrent"],
            max_staleness=sizes["staleness"],
            last_step=LAST_STEP,
            version=version,
            extra_tasks=sizes["extra_tasks"],
            extra_members=sizes["extra_members"],
            max_filtered=sizes["filtered"],
            history=restored.history,
        )
        self.running: dict[Slot, int] = {}
        self.resting: list[Slot] = []
        self.evaluated: set[int] = set()
        self.done: dict[int, dict[int, Rollout]] = {}
        for slot, kept in restored.rollouts.items():
            self.done.setdefault(slot.position, {})[slot.member] = kept

    # What may happen

    @rule()
    def admit(self) -> None:
        for slot in self.plan.admit():
            assert slot not in self.running
            self.ledger.admitted(slot, self.plan.version)
            self.running[slot] = self.plan.version

    @precondition(lambda self: self.running)
    @rule(data=st.data(), rewarded=st.booleans(), drop=st.booleans())
    def finish(self, data: st.DataObject, rewarded: bool, drop: bool) -> None:
        self.end(data.draw(st.sampled_from(sorted(self.running))), rewarded, drop)

    def end(self, slot: Slot, rewarded: bool, drop: bool) -> None:
        version = self.running.pop(slot)
        left = rollout(slot, version, rewarded=rewarded)
        if rewarded and slot.evaluation == NO_EVALUATION:
            self.buffer[left.rollout_id] = left
        self.ledger.ended(slot, Event.FINISHED, left.status)
        finished = self.plan.finished(slot, rewarded=rewarded)
        if slot.evaluation != NO_EVALUATION:
            return
        self.done.setdefault(slot.position, {})[slot.member] = left
        self.stop(finished.stop)
        if finished.ready and drop and self.plan.filter(slot.position):
            self.ledger.filtered(slot.position, "zero_variance")
            self.buffer.discard(kept.rollout_id for kept in self.done.pop(slot.position).values())

    def stop(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            del self.running[slot]
            self.ledger.ended(slot, Event.STOPPED)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[slot]
        self.ledger.ended(slot, Event.FAILED, "sandbox_error")
        self.plan.rest(slot)
        self.resting.append(slot)

    @precondition(lambda self: self.resting)
    @rule()
    def again(self) -> None:
        self.plan.again(self.resting.pop(0))

    @rule(limit=st.none() | st.integers(0, 4))
    def pause(self, limit: int | None) -> None:
        self.plan.limit = limit

    @rule(tasks=st.integers(1, 2))
    def evaluate(self, tasks: int) -> None:
        if self.plan.version not in self.evaluated:
            self.evaluated.add(self.plan.version)
            self.plan.evaluate(tasks)

    @rule()
    def train(self) -> None:
        step = self.plan.take()
        if step is None:
            return
        self.ledger.consumed(step)
        self.stop(step.stop)
        for position in step.dropped:
            self.buffer.discard(kept.rollout_id for kept in self.done.pop(position, {}).values())
        assert len(step.positions) == self.sizes["tasks"]
        if self.sizes["extra_tasks"] == 0:
            assert step.positions == self.orders.setdefault(step.number, step.positions), "a resume keeps the order"
        groups = {position: self.done.pop(position) for position in step.positions}
        self.trained[step.number] = {
            position: [
                (int(left.segments[0].weight_versions[1]), member)
                for member, left in members.items()
                if left.reward is not None
            ]
            for position, members in groups.items()
        }
        self.plan.pushed(step.number + 1)

    @rule()
    def save(self) -> None:
        self.saved = self.plan.version
        state = self.ledger.state
        before = set(state.behind(self.saved)).intersection(state.finished)
        self.buffer.discard(Slot(position=p, member=member).rollout_id for p in before for member in state.finished[p])
        self.ledger.saved(self.saved)

    @rule(torn=st.booleans())
    def crash_and_resume(self, torn: bool) -> None:
        self.ledger.close()
        if torn:
            with self.ledger.path.open("a") as file:
                file.write('{"event": "finis')
        for step in [step for step in self.trained if step >= self.saved]:
            del self.trained[step]
        self.start(self.saved)

    # What always holds

    @invariant()
    def bounds(self) -> None:
        if not hasattr(self, "plan"):
            return
        assert len(self.running) == self.plan.running <= self.sizes["concurrent"]
        assert self.ledger.state.balance()["running"] == len(self.running)

    @invariant()
    def what_is_trained(self) -> None:
        trained = getattr(self, "trained", {})
        positions = [position for step in trained.values() for position in step]
        assert len(positions) == len(set(positions)), "a group trains once"
        for step, groups in trained.items():
            for members in groups.values():
                assert all(0 <= step - version <= self.sizes["staleness"] for version, _ in members)
                assert len({member for _, member in members}) == len(members)

    def teardown(self) -> None:
        """Liveness: from wherever it is, a run in which nothing fails any more comes to its end."""
        if not hasattr(self, "plan"):
            return
        self.plan.limit = None
        for _ in range(10_000):
            if self.plan.version >= LAST_STEP:
                break
            while self.resting:
                self.again()
            self.admit()
            if self.running:
                self.end(min(self.running), True, False)
            self.train()
        assert self.plan.version == LAST_STEP
        assert sorted(self.trained) == list(range(LAST_STEP))
        self.what_is_trained()
        self.ledger.close()
        self.folder.cleanup()


class ManyRuns(Run):
    """The same, twenty times as often."""


def settled(examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=60,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        phases=(
            Phase.explicit,
            Phase.reuse,
            Phase.generate,
        ),  # to shrink a run takes minutes, and its steps tell enough
    )


TestRun: Any = Run.TestCase
TestRun.settings = settled(150)
TestManyRuns: Any = pytest.mark.long(ManyRuns.TestCase)
TestManyRuns.settings = settled(3000)

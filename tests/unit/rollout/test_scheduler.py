"""The scheduler keeps its bounds whatever the order of events."""

from __future__ import annotations

from typing import Any

import pytest

from rl_agent.errors import LawError
from rl_agent.rollout.group import Slot
from rl_agent.rollout.scheduler import History, Scheduler, Step


def scheduler(**changes: Any) -> Scheduler:
    values: dict[str, Any] = {
        "tasks_per_step": 2,
        "group_size": 2,
        "max_concurrent": 100,
        "max_staleness": 0,
        "last_step": 3,
        "version": 0,
    }
    return Scheduler(**{**values, **changes})


def positions(slots: list[Slot]) -> list[int]:
    return sorted({slot.position for slot in slots})


def finish(plan: Scheduler, slots: list[Slot]) -> None:
    for slot in slots:
        plan.finished(slot, rewarded=True)


def test_on_policy_rollouts_of_the_next_step_wait_for_its_weights() -> None:
    plan = scheduler()
    slots = plan.admit()
    assert positions(slots) == [0, 1]
    finish(plan, slots)
    assert plan.take() == Step(number=0, positions=(0, 1))
    assert plan.admit() == []
    plan.pushed(1)
    assert positions(plan.admit()) == [2, 3]


@pytest.mark.parametrize(("staleness", "admitted"), [(1, 4), (2, 6), (9, 6)])
def test_staleness_lets_steps_begin_before_their_weights_but_none_after_the_last(staleness: int, admitted: int) -> None:
    assert positions(scheduler(max_staleness=staleness).admit()) == list(range(admitted))


def test_data_order_is_that_of_the_stream() -> None:
    assert scheduler().admit() == [Slot(position=p, member=m) for p in range(2) for m in range(2)]


def test_a_rollout_that_is_tried_again_rests_first_and_then_goes_before_all_others() -> None:
    plan = scheduler(max_concurrent=1)
    (slot,) = plan.admit()
    plan.rest(slot)
    (other,) = plan.admit()
    assert other == Slot(position=0, member=1)
    plan.again(slot)
    plan.finished(other, rewarded=True)
    assert plan.admit() == [Slot(position=0, member=0, attempt=1)]


def test_a_rollout_reported_twice_is_an_error() -> None:
    plan = scheduler()
    slot = plan.admit()[0]
    plan.finished(slot, rewarded=True)
    with pytest.raises(LawError):
        plan.finished(slot, rewarded=True)


def test_a_group_without_rewards_is_complete_when_all_its_rollouts_are_over() -> None:
    plan = scheduler(tasks_per_step=1)
    first, second = plan.admit()
    assert not plan.finished(first, rewarded=False).ready
    assert plan.finished(second, rewarded=False).ready
    assert plan.take() == Step(number=0, positions=(0,))


def test_a_filtered_group_makes_room_for_the_next_position() -> None:
    plan = scheduler()
    slots = plan.admit()
    finish(plan, slots)
    assert plan.filter(0)
    assert plan.take() is None
    refill = plan.admit()
    assert positions(refill) == [2]
    finish(plan, refill)
    assert plan.take() == Step(number=0, positions=(1, 2))


def test_no_more_groups_are_filtered_for_one_step_than_allowed() -> None:
    plan = scheduler(max_filtered=1)
    finish(plan, plan.admit())
    assert plan.filter(0)
    assert not plan.filter(1)
    finish(plan, plan.admit())
    assert plan.take() == Step(number=0, positions=(1, 2))
    plan.pushed(1)
    finish(plan, plan.admit())
    assert plan.filter(3), "each step has its own allowance"


def test_a_group_that_still_runs_cannot_be_filtered() -> None:
    plan = scheduler()
    plan.admit()
    with pytest.raises(LawError):
        plan.filter(0)


def test_extra_members_are_stopped_once_the_group_has_enough_rewards() -> None:
    plan = scheduler(tasks_per_step=1, extra_members=1)
    slots = plan.admit()
    assert len(slots) == 3
    plan.finished(slots[0], rewarded=True)
    done = plan.finished(slots[2], rewarded=True)
    assert done.ready
    assert done.stop == (slots[1],)
    assert plan.running == 0


def test_extra_members_stand_in_for_broken_ones() -> None:
    plan = scheduler(tasks_per_step=1, extra_members=1)
    slots = plan.admit()
    assert not plan.finished(slots[0], rewarded=False).ready
    assert not plan.finished(slots[1], rewarded=True).ready
    assert plan.finished(slots[2], rewarded=True).ready


def test_extra_tasks_are_dropped_once_enough_groups_are_complete() -> None:
    plan = scheduler(extra_tasks=1)
    slots = plan.admit()
    assert positions(slots) == [0, 1, 2]
    finish(plan, [slot for slot in slots if slot.position != 1])
    step = plan.take()
    assert step == Step(number=0, positions=(0, 2), dropped=(1,), stop=tuple(s for s in slots if s.position == 1))
    assert plan.running == 0
    plan.pushed(1)
    assert positions(plan.admit()) == [3, 4, 5]


def test_rollouts_that_wait_for_another_attempt_in_a_dropped_group_never_start() -> None:
    plan = scheduler(extra_tasks=1)
    slots = plan.admit()
    resting = next(slot for slot in slots if slot.position == 1)
    plan.rest(resting)
    finish(plan, [slot for slot in slots if slot.position != 1])
    assert plan.take() is not None
    plan.again(resting)
    assert plan.admit() == []


def test_evaluations_go_first_and_belong_to_no_step() -> None:
    plan = scheduler(max_concurrent=1, tasks_per_step=1)
    plan.evaluate(2)
    seen = []
    while slots := plan.admit():
        seen.append(slots[0])
        plan.finished(slots[0], rewarded=True)
    evaluated = [Slot(position=p, member=0, evaluation=0) for p in range(2)]
    assert seen == [*evaluated, Slot(position=0, member=0), Slot(position=0, member=1)]


def test_a_lower_limit_stops_nothing_and_lets_nothing_in() -> None:
    plan = scheduler()
    slots = plan.admit()
    plan.limit = 1
    finish(plan, slots[:3])
    plan.rest(slots[3])
    plan.again(slots[3])
    plan.limit = 0
    assert plan.admit() == []
    plan.limit = None
    assert plan.admit() == [Slot(position=slots[3].position, member=slots[3].member, attempt=1)]


def test_after_a_resume_the_first_step_is_the_one_not_yet_trained() -> None:
    history = History(
        taken=frozenset({0, 1, 2, 5}), done=frozenset(Slot(position=p, member=m) for p, m in ((3, 1), (4, 0), (4, 1)))
    )
    plan = scheduler(version=2, max_staleness=1, last_step=4, history=history)
    slots = plan.admit()
    assert [(slot.position, slot.member) for slot in slots] == [(3, 0), (6, 0), (6, 1), (7, 0), (7, 1)]
    finish(plan, slots[:1])
    assert plan.take() == Step(number=2, positions=(3, 4))


def test_weights_never_go_back() -> None:
    plan = scheduler(version=2)
    with pytest.raises(LawError):
        plan.pushed(1)

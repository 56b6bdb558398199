"""The scheduler keeps its bounds whatever the order of events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_agent.errors import LawError
from rl_agent.rollout.scheduler import Scheduler, Slot


def scheduler(**changes: int) -> Scheduler:
    values = {
        "tasks_per_step": 2,
        "group_size": 2,
        "max_concurrent": 3,
        "max_staleness": 0,
        "last_step": 3,
        "version": 0,
    }
    return Scheduler(**{**values, **changes})


def test_on_policy_rollouts_of_the_next_step_wait_for_its_weights() -> None:
    plan = scheduler(max_concurrent=100)
    assert {slot.step for slot in plan.admit()} == {0}
    assert plan.admit() == []
    plan.pushed(1)
    assert {slot.step for slot in plan.admit()} == {1}


def test_with_staleness_one_the_next_step_starts_before_its_weights() -> None:
    assert {slot.step for slot in scheduler(max_concurrent=100, max_staleness=1).admit()} == {0, 1}


def test_data_order_is_that_of_the_stream() -> None:
    plan = scheduler(max_concurrent=100)
    assert plan.admit() == [Slot(step=0, task=t, member=m) for t in range(2) for m in range(2)]


def test_a_retry_goes_first_and_is_the_same_place_in_the_data() -> None:
    plan = scheduler(max_concurrent=1)
    (slot,) = plan.admit()
    plan.retry(slot)
    assert plan.admit() == [Slot(step=slot.step, task=slot.task, member=slot.member, attempt=1)]


def test_a_rollout_reported_twice_is_an_error() -> None:
    plan = scheduler()
    slot = plan.admit()[0]
    plan.finished(slot)
    with pytest.raises(LawError):
        plan.finished(slot)


def test_after_a_resume_the_first_step_is_the_one_not_yet_trained() -> None:
    assert {slot.step for slot in scheduler(version=2, max_concurrent=100).admit()} == {2}


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 8), st.integers(0, 3), st.data())
def test_bounds_hold_and_every_step_completes(
    tasks: int, group: int, concurrent: int, staleness: int, data: st.DataObject
) -> None:
    last = 5
    plan = scheduler(
        tasks_per_step=tasks, group_size=group, max_concurrent=concurrent, max_staleness=staleness, last_step=last
    )
    running: list[Slot] = []
    finished: list[Slot] = []
    trained = 0
    retries = 0
    while trained < last:
        running += plan.admit()
        assert len(running) == plan.running <= concurrent
        assert all(slot.step - plan.version <= staleness for slot in running)
        if plan.complete(trained):
            trained += 1
            plan.pushed(trained)
            continue
        assert running, "the scheduler must not stand still"
        slot = running.pop(data.draw(st.integers(0, len(running) - 1)))
        if retries < 5 and data.draw(st.booleans()):
            retries += 1
            plan.retry(slot)
        else:
            plan.finished(slot)
            finished.append(slot)
    places = {(slot.step, slot.task, slot.member) for slot in finished}
    assert len(places) == len(finished) >= last * tasks * group

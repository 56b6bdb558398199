"""What watches the tasks of a run: its counts are right, and neither its work nor its memory grows with the run."""

from __future__ import annotations

import gc
import random
import sys
import tracemalloc
from typing import TYPE_CHECKING, Any

from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.rollout.group import Group, Rollout
from rl_agent.rollout.pass_rates import PassRates
from rl_agent.rollout.suspects import Suspects
from rl_agent.tasks.quarantine import Quarantine
from rl_agent.tasks.task import EvalCmdSpec, Task

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def task(name: str) -> Task:
    return Task(task_id=name, problem_statement="x", image="host", workdir="/w", grader=EvalCmdSpec(eval_cmd="true"))


def graded(name: str, patch: bytes, *, solved: bool) -> Rollout:
    status = VerdictStatus.SOLVED if solved else VerdictStatus.FAILED
    verdict = Verdict(status=status, reward=float(solved))
    return Rollout(rollout_id="r", group_id="g", task_id=name, attempt=0, verdict=verdict, patch=patch)


def test_counts_over_a_run_are_those_of_all_its_groups_taken_together(tmp_path: Path) -> None:
    draw, latest = random.Random(3), {}
    rates = PassRates(tmp_path / "pass_rates.jsonl")
    for start in (*range(0, 16, 2), *range(12, 30, 2), *range(24, 40, 2)):  # twice a checkpoint's steps are done again
        if start in (12, 24):
            rates = PassRates(tmp_path / "pass_rates.jsonl")
        for number in (start, start + 1):
            name = str(draw.randrange(9))
            rollouts = tuple(graded(name, b"1", solved=draw.random() < 0.3) for _ in range(draw.randrange(3)))
            latest[number] = Group(group_id=f"{number:05d}", task=task(name), rollouts=rollouts)
        figures = rates.observe([latest[start], latest[start + 1]])
        solved: dict[str, list[bool]] = {}
        for group in latest.values():
            solved.setdefault(group.task.task_id, []).extend(one.status == "solved" for one in group.rollouts)
        tried = [one for one in solved.values() if one]
        assert figures["data/tasks_tried"] == len(tried)
        assert figures["data/tasks_never_solved"] == sum(not any(one) for one in tried)
        assert figures["data/tasks_always_solved"] == sum(all(one) for one in tried)


def run_of_groups(name: str, first: int, count: int) -> list[Group]:
    """Groups of one task, each of one rollout with a patch of its own."""
    return [
        Group(group_id=f"{n:06d}", task=task(name), rollouts=(graded(name, b"%d" % n, solved=False),))
        for n in range(first, first + count)
    ]


def lines_run(call: Callable[[], object]) -> int:
    """How many lines of code a call takes."""
    count = 0

    def trace(*_unused: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return count


def test_the_work_of_a_step_does_not_grow_with_the_run(tmp_path: Path) -> None:
    found = []
    for groups in (10, 1000):
        rates = PassRates(tmp_path / f"{groups}.jsonl")
        rates.observe(run_of_groups("a", 0, groups))
        resumed = PassRates(tmp_path / f"{groups}.jsonl")
        step = run_of_groups("b", groups, 2)
        found += [lines_run(lambda rates=rates, step=step: rates.observe(step)) for rates in (rates, resumed)]
    assert len(set(found)) == 1


def test_what_is_remembered_does_not_grow_with_the_run(tmp_path: Path) -> None:
    rates = PassRates(tmp_path / "pass_rates.jsonl")
    suspects = Suspects(Quarantine(tmp_path / "quarantine.jsonl"), after=2, remembered=500)

    def step(first: int) -> None:
        groups = run_of_groups("a", first, 500)
        rates.observe(groups)
        suspects.observe(groups)

    step(0)
    tracemalloc.start()
    try:
        step(500)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for first in range(1000, 3000, 500):
            step(first)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 20_000  # of 2000 rollouts


def test_a_flip_is_found_while_the_patch_is_among_the_last(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path / "quarantine.jsonl")
    suspects = Suspects(quarantine, after=1, remembered=4)

    def observe(*rollouts: Rollout) -> None:
        suspects.observe([Group(group_id="g", task=task("a"), rollouts=rollouts)])

    others = [graded("x", b"%d" % number, solved=True) for number in range(3)]
    observe(graded("a", b"1", solved=True), *others, graded("a", b"1", solved=False))
    assert "a" not in quarantine
    observe(*others[:2], graded("a", b"1", solved=True))
    assert "a" in quarantine

"""Broken tasks are left out without moving the others, across restarts."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest

from rl_agent.errors import ConfigError
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.rollout.group import AbortReason, Group, Rollout
from rl_agent.rollout.pass_rates import PassRates
from rl_agent.rollout.suspects import Suspects
from rl_agent.tasks.quarantine import Quarantine, Unquarantined
from rl_agent.tasks.reverse import reverse
from rl_agent.tasks.task import EvalCmdSpec, Task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def task(name: str) -> Task:
    return Task(task_id=name, problem_statement="x", image="host", workdir="/w", grader=EvalCmdSpec(eval_cmd="true"))


class Letters:
    def tasks(self, seed: int, start: int = 0) -> Iterator[Task]:
        for number in itertools.count(start):
            yield task("abcd"[(number + (seed > 9)) % 4])


def ids(quarantine: Quarantine, start: int = 0, count: int = 6) -> list[str]:
    return [task.task_id for task in itertools.islice(Unquarantined(Letters(), quarantine).tasks(0, start), count)]


def test_a_task_in_quarantine_is_left_out_and_those_behind_it_move_up(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path / "quarantine.jsonl")
    quarantine.add("b", "flaky")
    assert ids(quarantine) == list("acdacd")
    assert ids(Quarantine(tmp_path / "quarantine.jsonl"), start=1) == list("cdacda")


def test_what_was_given_out_keeps_its_place_in_this_run_and_in_one_that_resumes(tmp_path: Path) -> None:
    path = tmp_path / "quarantine.jsonl"
    quarantine = Quarantine(path)
    stream = Unquarantined(Letters(), quarantine)

    def step(source: Unquarantined, number: int) -> str:
        return "".join(task.task_id for task in itertools.islice(source.tasks(0, number * 2), 2))

    seen = [step(stream, 0), step(stream, 1), step(stream, 2)]
    quarantine.add("b", "flaky")
    seen += [step(stream, 3), step(stream, 4)]
    quarantine.add("c", "flaky")
    seen += [step(stream, 5), step(stream, 6)]
    assert seen == ["ab", "cd", "ab", "cd", "ac", "da", "da"]
    for first in range(7):  # resumed from any checkpoint, also one before a task was put in
        resumed = Unquarantined(Letters(), Quarantine(path))
        assert [step(resumed, number) for number in range(first, 7)] == seen[first:]


@pytest.mark.parametrize("bad", range(5))
def test_no_task_is_repeated_within_an_epoch_whatever_is_in_quarantine(tmp_path: Path, bad: int) -> None:
    class Shuffled:
        def tasks(self, seed: int, start: int = 0) -> Iterator[Task]:
            for number in itertools.count(start):
                order = random.Random(f"{seed}/{number // 10}").sample(range(10), 10)
                yield task(str(order[number % 10]))

    quarantine = Quarantine(tmp_path / "quarantine.jsonl")
    for name in range(bad):
        quarantine.add(str(name), "x")
    drawn = [found.task_id for found in itertools.islice(Unquarantined(Shuffled(), quarantine).tasks(7), 30 - 3 * bad)]
    for epoch in range(3):
        of_epoch = drawn[epoch * (10 - bad) : (epoch + 1) * (10 - bad)]
        assert sorted(of_epoch) == [str(name) for name in range(bad, 10)]


def test_a_quarantine_with_everything_in_it_is_an_error(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path / "quarantine.jsonl")
    for name in "abcd":
        quarantine.add(name, "x")
    with pytest.raises(ConfigError, match="all tasks are in quarantine"):
        ids(quarantine)


def rollout(name: str, **changes: object) -> Rollout:
    values: dict[str, object] = {"rollout_id": "r", "group_id": "g", "task_id": name, "attempt": 0, "verdict": None}
    return Rollout(**{**values, **changes})  # type: ignore[arg-type]


def graded(name: str, patch: bytes, *, solved: bool) -> Rollout:
    status = VerdictStatus.SOLVED if solved else VerdictStatus.FAILED
    return rollout(name, verdict=Verdict(status=status, reward=float(solved)), patch=patch)


def test_failing_set_ups_and_contradicting_verdicts_put_a_task_into_quarantine(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path / "quarantine.jsonl")
    suspects = Suspects(quarantine, after=2)
    broken = rollout("a", abort=AbortReason.SETUP_ERROR, detail="no image")
    honest = [graded("b", b"1", solved=True), graded("b", b"2", solved=False), graded("b", b"1", solved=True)]
    flips = [graded("c", b"1", solved=number % 2 == 0) for number in range(3)]
    lost = Verdict(status=VerdictStatus.INFRA_ERROR, reward=None, log="no such commit", metadata={"setup_failed": True})
    elsewhere = Verdict(status=VerdictStatus.INFRA_ERROR, reward=None, log="lost the sandbox")
    grading = (rollout("d", verdict=lost), rollout("b", verdict=elsewhere))
    groups = [Group(group_id="g", task=task("a"), rollouts=(broken, *honest, *flips, *grading))]
    assert suspects.observe(groups)["data/quarantined"] == 0.0
    assert suspects.observe(groups)["data/quarantined"] == 3.0
    assert quarantine.reasons == {"a": "setup_failed", "c": "verdict_flips", "d": "setup_failed"}


def test_pass_rates_are_kept_over_a_resume_and_a_jump_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "pass_rates.jsonl"

    def observe(rates: PassRates, number: int, name: str, *solved: bool) -> dict[str, float]:
        rollouts = tuple(graded(name, b"1", solved=one) for one in solved)
        return rates.observe([Group(group_id=f"{number:05d}-000", task=task(name), rollouts=rollouts)])

    rates = PassRates(path)
    observe(rates, 0, "a", *[False] * 8)
    figures = observe(rates, 1, "b", True, True)
    assert (figures["data/tasks_tried"], figures["data/tasks_never_solved"]) == (2, 1)
    assert (figures["data/tasks_always_solved"], figures["data/pass_rate_jumps"]) == (1, 0)
    assert observe(rates, 2, "a", True, True)["data/pass_rate_jumps"] == 1
    resumed = PassRates(path)
    again = observe(resumed, 2, "a", True, True)
    assert (again["data/pass_rate_jumps"], again["data/tasks_tried"], again["data/tasks_never_solved"]) == (1, 2, 0)


PATCH = """\
diff --git a/x b/x
index 1..2 100644
--- a/x
+++ b/x
@@ -1,4 +1,5 @@ def f
 one
--- two
+++ 2
+2.5
 three
-four
\\ No newline at end of file
+4
diff --git a/new b/new
new file mode 100644
--- /dev/null
+++ b/new
@@ -0,0 +1 @@
+only
"""


def test_the_reverse_of_the_reverse_is_the_patch_and_content_is_no_header() -> None:
    undone = reverse(PATCH)
    assert "@@ -1,5 +1,4 @@ def f" in undone
    assert "-++ 2\n-2.5\n+-- two\n" in undone
    assert "+four\n\\ No newline at end of file\n" in undone
    assert "deleted file mode 100644\n--- a/new\n+++ /dev/null\n@@ -1 +0,0 @@\n-only\n" in undone
    assert reverse(undone) == PATCH

"""Broken tasks are left out without moving the others, across restarts."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from rl_agent.errors import ConfigError
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.rollout.group import AbortReason, Group, Rollout
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


def ids(quarantine: Quarantine, start: int = 0) -> list[str]:
    return [task.task_id for task in itertools.islice(Unquarantined(Letters(), quarantine).tasks(0, start), 6)]


def test_a_task_in_quarantine_is_replaced_and_no_other_moves(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path / "quarantine.jsonl")
    assert ids(quarantine) == list("abcdab")
    quarantine.add("b", "flaky")
    assert ids(quarantine) == list("accdac")
    assert ids(Quarantine(tmp_path / "quarantine.jsonl"), start=1) == list("ccdacc")


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
    groups = [Group(group_id="g", task=task("a"), rollouts=(broken, *honest, *flips))]
    assert suspects.observe(groups) == {"data/quarantined": 0.0}
    assert suspects.observe(groups) == {"data/quarantined": 2.0}
    assert quarantine.reasons == {"a": "setup_failed", "c": "verdict_flips"}


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

"""Toy tasks: small generated Python repositories, each with one bug, a problem statement and a hidden test.

The argument names, which the fix needs, are only in the file, so an agent must read it before it edits. Seeds are
unlimited. A tenth of all surfaces (file, function, arguments) is held out by hash and never generated for training.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rl_agent.embedded.toy_kinds import ARGUMENTS, FILES, FUNCTIONS, KINDS, BugKind
from rl_agent.errors import ConfigError
from rl_agent.tasks.task import EvalCmdSpec, Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WORKDIR = "/workspace/repo"
HIDDEN_TEST = "hidden_test.py"
HELD_OUT_SIZE = 64
"""Number of tasks in the held-out set: eight of each of the eight default kinds."""
_HELD_OUT_SHARE = 10
"""One in this many surfaces is held out."""
_MISSING_RETURN = 0.1
"""Fraction of files whose bug is a missing `return` instead of a wrong expression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyTask:
    """A generated bug with its right answer and plausible mistakes."""

    task_id: str
    kind: BugKind
    file: str
    function: str
    arguments: tuple[str, str]
    source: str
    """Text of `file` with the bug; the body is its second line."""
    right: str
    """The right expression."""
    wrong: tuple[str, ...]
    """Plausible wrong expressions."""

    @property
    def problem_statement(self) -> str:
        """Return the problem statement."""
        return f"Fix {self.file}: {self.function} must {self.kind.sentence}."

    @property
    def last_word(self) -> str:
        """Last line that a passing hidden test prints. The file under test could forge an exit code."""
        return f"PASS {zlib.crc32(self.task_id.encode()):08x}"

    def hidden_test(self) -> str:
        """Return a script that prints `last_word` if and only if the function is right on every sample."""
        names = ", ".join(("x", "y")[: self.kind.arity])
        right = self.kind.right.format(x="x", y="y")
        return (
            f"from {self.file.removesuffix('.py')} import {self.function}\n"
            f"for sample in {list(self.kind.samples)!r}:\n"
            f"    expected = (lambda {names}: {right})(*sample)\n"
            f"    assert {self.function}(*sample) == expected, sample\n"
            f"print({self.last_word!r})\n"
        )

    def gold_patch(self, expression: str) -> str:
        """Return the patch that makes the function return `expression`."""
        head, body = self.source.splitlines(keepends=True)
        return (
            f"diff --git a/{self.file} b/{self.file}\n--- a/{self.file}\n+++ b/{self.file}\n@@ -1,2 +1,2 @@\n"
            f" {head}-{body}+    return {expression}\n"
        )

    def as_task(self, image: str) -> Task:
        """Return the toy task as a `Task`."""
        return Task(
            task_id=self.task_id,
            problem_statement=self.problem_statement,
            image=image,
            workdir=WORKDIR,
            files={self.file: self.source},
            grader=EvalCmdSpec(
                eval_cmd=f'[ "$(python3 {HIDDEN_TEST} | tail -n 1)" = "{self.last_word}" ]',
                files={HIDDEN_TEST: self.hidden_test()},
            ),
            gold_patch=self.gold_patch(self.right),
            metadata={"kind": self.kind.name},
        )

    def planted(self, image: str, fault: int) -> Task:
        """Return the task with a fault for `job=validate`: failing setup, wrong gold patch, or a test that always passes."""
        task = self.as_task(image)
        if fault % 3 == 0:
            return replace(task, pre_commands=("echo the planted fault; exit 3",))
        if fault % 3 == 1:
            return replace(task, gold_patch=self.gold_patch(self.wrong[0]).replace("+    return", "+    return  ", 1))
        return replace(task, grader=EvalCmdSpec(eval_cmd="true"))


def generate(kind: BugKind, key: str, *, held_out: bool) -> ToyTask:
    """Return the toy task of a kind and a key. The same key gives the same task on every machine."""
    rng = random.Random(f"{kind.name}/{key}")  # noqa: S311 (not for secrets)
    while True:
        file, function = rng.choice(FILES), rng.choice(FUNCTIONS)
        x, y = rng.sample(ARGUMENTS, 2)
        surface = zlib.crc32(f"{file} {function} {x} {y if kind.arity == 2 else ''}".encode())
        if (surface % _HELD_OUT_SHARE == 0) == held_out:
            break
    right = kind.right.format(x=x, y=y)
    wrong = tuple(expression.format(x=x, y=y) for expression in kind.wrong)
    body = right if rng.random() < _MISSING_RETURN else f"return {rng.choice(wrong)}"
    signature = f"{x}, {y}" if kind.arity == 2 else x
    return ToyTask(
        task_id=f"toy-{kind.name}-{key}",
        kind=kind,
        file=file,
        function=function,
        arguments=(x, y),
        source=f"def {function}({signature}):\n    {body}\n",
        right=right,
        wrong=wrong,
    )


def toy_tasks(seed: int, split: str, kinds: Sequence[str], start: int = 0) -> Iterator[ToyTask]:
    """Yield endless toy tasks, one of each kind in turn. `split`: `train` or `held_out`."""
    chosen = [bug_kind(name) for name in kinds]
    index = start
    while True:
        yield generate(chosen[index % len(chosen)], f"{split}-{seed}-{index}", held_out=split == "held_out")
        index += 1


def held_out_tasks(kinds: Sequence[str]) -> list[ToyTask]:
    """Return the fixed held-out set: HELD_OUT_SIZE tasks over `kinds`."""
    stream = toy_tasks(0, "held_out", kinds)
    return [next(stream) for _ in range(HELD_OUT_SIZE)]


def bug_kind(name: str) -> BugKind:
    """Return a kind of bug by name. Raises ConfigError for an unknown one."""
    if name not in KINDS:
        raise ConfigError(f"data.kinds: unknown kind `{name}`. Known: {', '.join(KINDS)}.")
    return KINDS[name]

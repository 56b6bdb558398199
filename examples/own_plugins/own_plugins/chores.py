"""A data source: the same few chores, in an order that depends on the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rl_agent.config.data import DataConfig
from rl_agent.tasks.task import EvalCmdSpec, Task

if TYPE_CHECKING:
    from collections.abc import Iterator

CHORES: Final = (
    ("total", "return the sum of its arguments", "price - tax", "total(7, 2) == 9"),
    ("change", "return the first argument minus the second", "tax - price", "change(7, 2) == 5"),
)
"""Function, what it must do, its wrong body, what must hold."""


@dataclass(kw_only=True)
class ChoresConfig(DataConfig):
    """Small repositories with one bug each."""

    image: str = "host"
    """Any image with python3."""

    def build(self) -> Chores:
        """Return the task source."""
        return Chores(self)


class Chores:
    """See the module."""

    def __init__(self, config: ChoresConfig) -> None:
        self._image = config.image

    def tasks(self, seed: int, start: int = 0) -> Iterator[Task]:
        """Return the stream of `seed`. See `rl_agent.tasks.source.TaskSource`."""
        position = start
        while True:
            number = random.Random(f"{seed}/{position}").randrange(len(CHORES))  # noqa: S311 (not for secrets)
            yield self._task(position, *CHORES[number])
            position += 1

    def _task(self, position: int, function: str, sentence: str, body: str, claim: str) -> Task:
        return Task(
            task_id=f"chore-{position}-{function}",
            problem_statement=f"Fix shop.py: {function} must {sentence}.",
            image=self._image,
            workdir="/workspace/shop",
            files={"shop.py": f"def {function}(price, tax):\n    return {body}\n"},
            grader=EvalCmdSpec(
                eval_cmd="python3 hidden_test.py",
                files={"hidden_test.py": f"from shop import {function}\nassert {claim}\n"},
            ),
        )

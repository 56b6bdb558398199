"""Task source of the toy tasks, and the demonstrator that knows their right answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from rl_agent.config.data import DataConfig
from rl_agent.embedded.agent_style import agent_style
from rl_agent.embedded.demonstration import Demonstrations, encoder
from rl_agent.embedded.toy import bug_kind, held_out_tasks, toy_tasks
from rl_agent.embedded.toy_kinds import KINDS
from rl_agent.errors import ConfigError
from rl_agent.tasks.source import Demonstration, KnownAnswers
from rl_agent.tokens.template_renderer import TemplateRenderer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rl_agent.embedded.agent_style import AgentStyle
    from rl_agent.tasks.task import Task


class ToySplit(StrEnum):
    """Split of the toy tasks."""

    train = "train"
    """Endless tasks, different for each seed."""
    held_out = "held_out"
    """Held-out tasks, the same for every seed and never used for training. The first 64 are the set of
    `eval/p_right`."""


@dataclass(kw_only=True)
class ToyDataConfig(DataConfig):
    """Generated one-file repositories with one bug each."""

    kinds: list[str] = field(default_factory=lambda: ["sub", "add", "max", "ge", "lt", "even", "last", "up"])
    """Kinds of bugs. Tasks cycle through them, so every kind is equally frequent."""
    split: ToySplit = ToySplit.train
    image: str = "host"
    """Image of the sandboxes. The hidden tests need only python3 and its standard library."""
    planted: int = 0
    """Number of first tasks with a planted fault, to try `job=validate`. Faults cycle through: the setup fails, the
    gold patch fails, the task is solved without a change."""
    style: str | None = None
    """Agent CLI that demonstrations imitate; null: no demonstrations and no `eval/p_right`."""

    @override
    def build(self) -> ToyTasks:
        return ToyTasks(self)

    @override
    def build_demonstrator(self) -> ToyDemonstrator | None:
        return None if self.style is None else ToyDemonstrator(self.kinds, agent_style(self.style))


class ToyTasks:
    """Task source of the toy tasks."""

    def __init__(self, config: ToyDataConfig) -> None:
        if not config.kinds:
            raise ConfigError("data.kinds: empty. Set at least one kind.")
        self._config = config
        for name in config.kinds:
            bug_kind(name)

    def tasks(self, seed: int, start: int = 0) -> Iterator[Task]:
        """See TaskSource. The held-out tasks are the same for every seed."""
        of = 0 if self._config.split is ToySplit.held_out else seed
        for position, toy in enumerate(toy_tasks(of, self._config.split.value, self._config.kinds, start), start=start):
            yield (
                toy.planted(self._config.image, position)
                if position < self._config.planted
                else toy.as_task(self._config.image)
            )


class ToyDemonstrator:
    """Demonstrator of the toy tasks: a scripted agent in the exact format of one agent CLI."""

    def __init__(self, kinds: Sequence[str], style: AgentStyle) -> None:
        self._kinds = kinds
        self._style = style

    def held_out(self, model_folder: Path) -> list[KnownAnswers]:
        """See `Demonstrator.held_out`."""
        make = self._in(model_folder).make
        return [
            KnownAnswers(
                right=make(task, task.right),
                wrong=[make(task, mistake) for mistake in dict.fromkeys(task.wrong) if mistake != task.right],
            )
            for task in held_out_tasks(self._kinds)
        ]

    def demonstrations(self, model_folder: Path, seed: int, right_share: float) -> Iterator[Demonstration]:
        """See `Demonstrator.demonstrations`. Every kind of bug occurs, in shuffled order."""
        demonstrations = self._in(model_folder)
        kinds = [str(name) for name in np.random.default_rng(seed).permutation(list(KINDS))]
        for task in toy_tasks(seed, "train", kinds):
            yield demonstrations.mixed(task, right_share)

    def _in(self, model_folder: Path) -> Demonstrations:
        return Demonstrations(self._style, TemplateRenderer(model_folder), encoder(model_folder))

"""The toy tasks as a task source that also knows its right answers."""

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
    """Which toy tasks."""

    train = "train"
    """Endless, by seed."""
    held_out = "held_out"
    """Held-out tasks, equal for every seed. The first 64 are the set of `eval/p_right`. Never generated for training."""


@dataclass(kw_only=True)
class ToyDataConfig(DataConfig):
    """Generated one-file repositories with one bug each."""

    kinds: list[str] = field(default_factory=lambda: ["sub", "add", "max", "ge", "lt", "even", "last", "up"])
    """Kinds of bug, one task of each in turn, so that every step sees every kind equally often."""
    split: ToySplit = ToySplit.train
    image: str = "host"
    """Any image with python3 will do: the hidden tests need its standard library only."""
    planted: int = 0
    """The first tasks that are broken on purpose: one that no set-up survives, one whose gold patch fails, one that is solved from
    the start, and so on. For trying `job=validate`."""
    style: str | None = None
    """The agent CLI that demonstrations imitate; null: there are none, and `eval/p_right` is not measured."""

    @override
    def build(self) -> ToyTasks:
        return ToyTasks(self)

    @override
    def build_demonstrator(self) -> ToyDemonstrator | None:
        return None if self.style is None else ToyDemonstrator(self.kinds, agent_style(self.style))


class ToyTasks:
    """The toy tasks as a task source."""

    def __init__(self, config: ToyDataConfig) -> None:
        if not config.kinds:
            raise ConfigError("data.kinds is empty. Name at least one kind of toy bug.")
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
    """See `tasks.source.Demonstrator`: a scripted agent in the exact form of one agent CLI."""

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
        """See `Demonstrator.demonstrations`: every kind of bug, in a mixed order."""
        demonstrations = self._in(model_folder)
        kinds = [str(name) for name in np.random.default_rng(seed).permutation(list(KINDS))]
        for task in toy_tasks(seed, "train", kinds):
            yield demonstrations.mixed(task, right_share)

    def _in(self, model_folder: Path) -> Demonstrations:
        return Demonstrations(self._style, TemplateRenderer(model_folder), encoder(model_folder))

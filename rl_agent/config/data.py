"""Base config of a data source: where tasks come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from rl_agent.config.plug_in import PlugInConfig

if TYPE_CHECKING:
    from rl_agent.tasks.source import Demonstrator, TaskSource


@dataclass(kw_only=True)
class DataConfig(PlugInConfig, base=True):
    """Options that every data source has."""

    replay: str | None = None
    """A run folder. `job=train` then trains on the rollouts recorded there, step by step, and runs no agent."""

    @override
    def build(self) -> TaskSource:
        """Return the task source."""
        raise NotImplementedError

    def build_demonstrator(self) -> Demonstrator | None:
        """Return what knows the right trajectories of the tasks, or None if they are unknown."""
        return None

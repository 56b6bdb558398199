"""Base config of a data source, which provides tasks."""

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
    """Run folder whose recorded rollouts `job=train` trains on, step by step, without running an agent."""

    @override
    def build(self) -> TaskSource:
        """Return the task source."""
        raise NotImplementedError

    def build_demonstrator(self) -> Demonstrator | None:
        """Return a demonstrator of right trajectories, or None if they are unknown."""
        return None

"""Config of tracking: wandb and the console."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class WandbMode(StrEnum):
    """Mode of wandb."""

    online = "online"
    """Upload during the run. Needs the environment variable WANDB_API_KEY."""
    offline = "offline"
    """Write to the run folder. `wandb sync` uploads it later."""
    disabled = "disabled"


@dataclass(kw_only=True)
class TrackingConfig:
    """Options of tracking. metrics.jsonl and the log are always written."""

    wandb: WandbMode = WandbMode.offline
    """Mode of wandb."""
    project: str = "rl_agent"
    """Project in wandb."""
    entity: str | None = None
    """User or team in wandb; null: the default of the key."""
    group: str | None = None
    """Group in wandb; null: the runs of a sweep (`-m`) share a group named after the sweep."""
    tags: list[str] = field(default_factory=list)
    """Tags in wandb."""
    rollout_table: int = 16
    """Rollouts per step in wandb's table, with shortened texts; 0: no table. The run folder has all rollouts."""
    console: bool = True
    """Show a live view on a terminal. Other outputs get plain lines."""

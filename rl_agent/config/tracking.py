"""Schema of `tracking/`: what is shown and recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class WandbMode(StrEnum):
    """Mode of wandb."""

    online = "online"
    """Needs the environment variable WANDB_API_KEY."""
    offline = "offline"
    """Written to the run folder; `wandb sync` sends it later."""
    disabled = "disabled"


@dataclass(kw_only=True)
class TrackingConfig:
    """Records of a run. `metrics.jsonl` and the log are always written."""

    wandb: WandbMode = WandbMode.offline
    project: str = "rl_agent"
    entity: str | None = None
    group: str | None = None
    """null: the runs of a sweep (`-m`) share one, named after the sweep; others have none."""
    tags: list[str] = field(default_factory=list)
    rollout_table: int = 16
    """Rollouts of a step that wandb's table of rollouts shows, texts cut; 0: no table. The run folder has all of them."""
    console: bool = True
    """A live view on a terminal; plain lines elsewhere."""

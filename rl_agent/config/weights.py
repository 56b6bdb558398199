"""The schema of conf/weights: how new weights reach the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(slots=True, kw_only=True)
class DiskConfig:
    """Through safetensors files in a folder that trainer and engine both see."""

    _target_: str = "rl_agent.weights.disk.DiskSender"
    folder: str | None = None
    """Absolute folder for the versions, for example under /dev/shm; null: `weights/` in the run's folder."""
    keep: int = 2
    """Versions kept; the engine may still read the one before the newest."""


SCHEMAS: Final = {"disk": DiskConfig}

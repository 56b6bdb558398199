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


@dataclass(slots=True, kw_only=True)
class GlooConfig:
    """Broadcast from the trainer's memory to the engine's, over TCP."""

    _target_: str = "rl_agent.weights.stream.GlooSender"
    host: str = "auto"
    """Where the engine's workers find the trainer's first rank; `auto`: loopback, or the address of its node in a cluster of Ray's."""
    port: int = 0
    """0: a free one."""
    bucket_mb: int = 512
    """Weights travel in pieces of this size."""
    timeout_s: float = 300.0
    """How long each half of a push waits for the other."""


@dataclass(slots=True, kw_only=True)
class NcclConfig(GlooConfig):
    """Broadcast from the trainer's GPUs to the engine's, which must be others."""

    _target_: str = "rl_agent.weights.stream.NcclSender"


@dataclass(slots=True, kw_only=True)
class IpcConfig:
    """Through shared buffers, where trainer and engine are on the same GPU."""

    _target_: str = "rl_agent.weights.ipc.IpcSender"
    bucket_mb: int = 512


SCHEMAS: Final = {"disk": DiskConfig, "gloo": GlooConfig, "nccl": NcclConfig, "ipc": IpcConfig}

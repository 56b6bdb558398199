"""Schema of `sandbox/`: where agents and tests run."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class Storage(StrEnum):
    """Where a local sandbox keeps what is written in it."""

    memory = "memory"
    """A memory file system: fastest, gone at once."""
    disk = "disk"
    """A folder below `state_dir`, which must not itself lie on an overlay."""


class NetworkName(StrEnum):
    """What a sandbox reaches, see `sandboxes.base.Network`."""

    none = "none"
    host = "host"


@dataclass(slots=True, kw_only=True)
class LocalSandboxConfig:
    """Sandboxes on this machine: overlayfs, bubblewrap, own namespaces. Needs root."""

    _target_: str = "rl_agent.sandboxes.local.provider.LocalProvider"
    state_dir: str | None = None
    """Folder for mount points and, with `storage: disk`, for what is written; null: one of this user's in the system's
    temporary folder."""
    storage: Storage = Storage.memory
    disk_mb: int = 4096
    """Most that may be written into a sandbox with `storage: memory`."""
    network: NetworkName = NetworkName.none
    memory_mb: int | None = 8192
    processes: int | None = 1024
    cpus: float | None = None
    """Cores' worth of time; null: no bound."""
    nice: int = 10
    """Each sandbox weighs like one process of this niceness, so that the engine keeps a core on a shared machine."""
    max_output_bytes: int = 4_000_000
    """Kept of each of a command's stdout and stderr: head and tail."""
    boot_timeout_s: float = 60.0
    visible: list[str] = field(default_factory=list)
    """Folders of this machine that image `host` shows besides the system's, read-only."""


SCHEMAS: Final = {"local": LocalSandboxConfig}

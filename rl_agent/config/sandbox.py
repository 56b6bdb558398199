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
    boot_concurrency: int = 16
    """Boots at the same time, in all processes of this user on this machine together."""
    boots_per_s: float | None = None
    """Boots begun a second, counted in the same way; null: no bound."""
    visible: list[str] = field(default_factory=list)
    """Folders of this machine that image `host` shows besides the system's, read-only."""
    images_dir: str | None = None
    """Where container images (`oci:`) are unpacked, once each; null: ~/.cache/rl_agent/images."""
    seccomp: bool = True
    """Refuse system calls that only administer the machine or widen the kernel's surface (x86-64 only)."""


@dataclass(slots=True, kw_only=True)
class RemoteSandboxConfig:
    """What providers on other machines have."""

    state_dir: str | None = None
    """Where running sandboxes are written down, so that the next start can remove what a killed run left, and where
    processes take turns to boot; null: a folder of this user's in the system's temporary one."""
    network: NetworkName = NetworkName.none
    advertise_host: str | None = None
    """The host name under which sandboxes reach this machine."""
    memory_mb: int | None = None
    processes: int | None = None
    cpus: float | None = None
    max_output_bytes: int = 4_000_000
    """Kept of each of a command's stdout and stderr: head and tail."""
    boot_concurrency: int = 16
    """Boots at the same time, in all processes of this machine together."""
    boots_per_s: float | None = None
    """Boots begun a second, in all processes of this machine together; null: no bound."""
    boot_retries: int = 2
    boot_timeout_s: float = 180.0
    """For one try."""


@dataclass(slots=True, kw_only=True)
class E2BSandboxConfig(RemoteSandboxConfig):
    """Sandboxes of E2B, or of any server that speaks to its SDK. The key is the environment's E2B_API_KEY."""

    _target_: str = "rl_agent.sandboxes.e2b.provider.E2BProvider"
    api_url: str | None = None
    """The control plane; null: E2B's own."""
    sandbox_url: str | None = None
    """Where sandboxes are reached; null: as the control plane says."""
    domain: str | None = None
    """E2B's, for a deployment of one's own; null: e2b.app."""
    image_metadata_key: str | None = None
    """Metadata key that carries the task's image; null: the image is the template."""
    template: str = "base"
    """What is booted where the image goes by metadata."""
    metadata: dict[str, str] = field(default_factory=dict)
    """Sent with every boot, for routing."""
    metadata_file: str | None = None
    """A JSON object of strings: more of it."""
    allow_out: list[str] = field(default_factory=list)
    """Addresses that sandboxes reach with `network: none` besides `advertise_host`."""
    assets_in_image: bool = False
    """Images have the agent CLIs already, at their places (/opt/rl_agent/bin): they are looked for, not uploaded."""
    max_connections: int = 1000
    """Most connections of the SDK's to one address; every running command holds one, or a stream of one."""
    max_lifetime_s: float = 86400.0
    """The longest lifetime that the account grants (E2B: an hour without a subscription, a day with one)."""
    request_timeout_s: float = 60.0
    request_retries: int = 4
    """For what may be asked again: boots, files, and commands of our own that only look. Never a command of an agent's."""


@dataclass(slots=True, kw_only=True)
class DockerSandboxConfig(RemoteSandboxConfig):
    """Containers of Docker, or of Podman, through its HTTP API."""

    _target_: str = "rl_agent.sandboxes.docker.provider.DockerProvider"
    url: str = "unix:///var/run/docker.sock"
    """Where the service listens: `unix:///path`, or `http://host:port` without encryption."""
    container_network: str | None = None
    """Network of Docker's that sandboxes join with `network: none`, which reaches what Docker lets it; null: none, and the
    adapter's port is carried inside (a service on this machine, and root)."""
    pull: bool = True
    """Fetch images that are not there from their registry."""
    pull_timeout_s: float = 1800.0
    request_timeout_s: float = 60.0
    request_retries: int = 4
    """For what may be asked again: boots, files, and commands of our own that only look. Never a command of an agent's."""


SCHEMAS: Final = {"local": LocalSandboxConfig, "e2b": E2BSandboxConfig, "docker": DockerSandboxConfig}

"""Base config of a sandbox provider, which runs agents and tests."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from typing_extensions import override

from rl_agent.config.plug_in import PlugInConfig, Problem, at_least

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.config.schema import Config
    from rl_agent.sandboxes.base import SandboxProvider


class Network(StrEnum):
    """Network access of a sandbox."""

    none = "none"
    """Only the ports passed to `Sandbox.expose`."""
    host = "host"
    """Everything that the host reaches."""


@dataclass(kw_only=True)
class SandboxConfig(PlugInConfig, base=True):
    """Options that every sandbox provider has."""

    state_dir: str | None = None
    """Folder for records of running sandboxes, so that the next start can remove sandboxes of a killed run; null: a
    folder of this user in the system's temporary folder."""
    network: Network = Network.none
    advertise_host: str | None = None
    """Host name under which sandboxes on other machines reach this machine."""
    memory_mb: int | None = None
    """Memory limit; null: no limit."""
    processes: int | None = None
    """Limit on the number of processes; null: no limit."""
    cpus: float | None = None
    """CPU limit in cores; null: no limit."""
    max_output_bytes: int = 4_000_000
    """Bytes kept of a command's stdout, and of its stderr: head and tail."""
    boot_timeout_s: float = 180.0
    """Timeout of one boot attempt."""
    boot_concurrency: int = 16
    """Boots at a time, over all processes of this user on this machine."""
    boots_per_s: float | None = None
    """Boots started per second, over all processes of this user on this machine; null: no limit."""

    @override
    def build(self) -> SandboxProvider:
        """Return the provider."""
        raise NotImplementedError

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        yield from at_least(1, sandbox__boot_concurrency=self.boot_concurrency)


@dataclass(kw_only=True)
class RemoteSandboxConfig(SandboxConfig, base=True):
    """Options of providers whose sandboxes may run on other machines."""

    boot_retries: int = 2
    """Retries of a failed boot."""
    request_timeout_s: float = 60.0
    """Timeout of one request to the provider."""
    request_retries: int = 4
    """Retries of idempotent requests: boots, files, and this project's own look-ups. An agent's command is never
    retried."""

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        yield from super().problems(config)
        yield from at_least(0, sandbox__boot_retries=self.boot_retries, sandbox__request_retries=self.request_retries)

    def unreachable_adapter(self, config: Config, *, sandboxes: str, hint: str = "") -> Iterator[Problem]:
        """Yield a problem if sandboxes on other machines cannot reach the adapter. `hint`: another way to fix it."""
        bound = config.adapter.bind_host
        if self.advertise_host is None or is_loopback(self.advertise_host):
            yield Problem(
                "adapter.advertise_host",
                f"{self.advertise_host}: {sandboxes} cannot reach the adapter at this address.",
                "Set it to a name or address of this machine that they reach, with adapter.bind_host=0.0.0.0 and "
                f"adapter.port.{hint}",
            )
        elif is_loopback(bound):
            yield Problem(
                "adapter.bind_host",
                f"{bound}: the adapter listens on loopback only, but {sandboxes} connect to {self.advertise_host}.",
                "Set adapter.bind_host=0.0.0.0.",
            )


def is_loopback(host: str | None) -> bool:
    """Return whether a host name is loopback."""
    if host is None:
        return False
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

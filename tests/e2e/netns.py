"""Machines of one's own on one machine: network namespaces joined by a bridge, each with an address; `ip netns exec` is their ssh."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


def _works() -> bool:
    if os.geteuid() or not shutil.which("ip"):
        return False
    name = f"t{uuid.uuid4().hex[:8]}"
    with suppress(subprocess.SubprocessError):
        ip("netns", "add", name)
        ip("netns", "del", name)
        return True
    return False


needs_netns = pytest.mark.skipif(not _works(), reason="network namespaces need root and iproute2")
SSH = "ip netns exec"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    name: str
    address: str

    def processes(self) -> list[psutil.Process]:
        """All that runs in its network."""
        listed = subprocess.run(["ip", "netns", "pids", self.name], check=True, capture_output=True, timeout=30).stdout
        found = []
        for pid in listed.split():
            with suppress(psutil.Error):
                found.append(psutil.Process(int(pid)))
        return found

    def power_off(self) -> None:
        """Its network is gone and so is all that runs there, without a word to anybody."""
        with suppress(subprocess.SubprocessError):
            ip("-n", self.name, "link", "set", "eth0", "down")
        while processes := [p for p in self.processes() if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]:
            for process in processes:
                with suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(processes, timeout=2)


@contextmanager
def machines(count: int) -> Iterator[list[Machine]]:
    """So many, which reach each other and nothing else."""
    tag = uuid.uuid4().hex[:6]
    bridge = f"br{tag}"
    made = [Machine(name=f"n{tag}{n}", address=f"10.77.{int(tag[:2], 16)}.{n + 1}") for n in range(count)]
    try:
        ip("link", "add", bridge, "type", "bridge")
        ip("link", "set", bridge, "up")
        for number, machine in enumerate(made):
            ip("netns", "add", machine.name)
            ip("link", "add", f"v{tag}{number}", "type", "veth", "peer", "name", "eth0", "netns", machine.name)
            ip("link", "set", f"v{tag}{number}", "master", bridge, "up")
            ip("-n", machine.name, "addr", "add", f"{machine.address}/24", "dev", "eth0")
            ip("-n", machine.name, "link", "set", "eth0", "up")
            ip("-n", machine.name, "link", "set", "lo", "up")
            ip("-n", machine.name, "route", "add", "default", "dev", "eth0")  # by which a machine knows its address
        yield made
    finally:
        for machine in made:
            with suppress(subprocess.SubprocessError):
                machine.power_off()
                ip("netns", "del", machine.name)
        with suppress(subprocess.SubprocessError):
            ip("link", "del", bridge)

"""Control groups of sandboxes: version 2 if it is delegated, else version 1, else none."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rl_agent.sandboxes.base import Limits

CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
CPU_PERIOD_US: Final = 100_000
NICE_STEP: Final = 1.25
"""The kernel's ratio between the weights of adjacent nice values."""
REMOVE_TRIES: Final = 200
PREFIX: Final = "rl_agent-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroups:
    """Control groups of one sandbox, or the group that all sandboxes share."""

    folders: Sequence[Path] = ()
    rlimits: Mapping[int, int] = field(default_factory=dict)
    """Resource limits in place of missing controllers."""

    def remove(self) -> None:
        """Remove the empty groups."""
        for folder in self.folders:
            remove_group(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Controllers:
    """Folders in which this process may create groups, by controller."""

    parents: Mapping[str, Path]
    unified: bool

    @staticmethod
    def find() -> Controllers:
        """Find the groups of this process. New groups are created below them."""
        own: dict[str, str] = {}
        with contextlib.suppress(OSError):
            for line in Path("/proc/self/cgroup").read_text().splitlines():
                _, names, path = line.split(":", 2)
                own |= dict.fromkeys(names.split(","), path.lstrip("/"))
        if "" in own and (CGROUP_ROOT / "cgroup.controllers").exists():
            parent = CGROUP_ROOT / own[""]
            with contextlib.suppress(OSError):
                (parent / "cgroup.subtree_control").write_text("+cpu +memory +pids")
            with contextlib.suppress(OSError):
                enabled = (parent / "cgroup.subtree_control").read_text().split()
                return Controllers(parents=dict.fromkeys(enabled, parent), unified=True)
            return Controllers(parents={}, unified=True)
        parents = {name: CGROUP_ROOT / name / own[name] for name in ("cpu", "memory", "pids") if name in own}
        return Controllers(
            parents={name: path for name, path in parents.items() if os.access(path, os.W_OK)}, unified=False
        )

    def describe(self) -> str:
        """Return a description of the limits, for the log."""
        kind = f"control groups version {2 if self.unified else 1}"
        found = [
            f"{what} by {kind}" if controller in self.parents else f"{what} {instead}"
            for controller, what, instead in (
                ("memory", "memory", "per process only (RLIMIT_DATA)"),
                ("pids", "processes", "not bounded"),
                ("cpu", "CPU time", "not bounded"),
            )
        ]
        return f"{', '.join(found)}; disk by the size of their memory file systems; time by their lifetime"

    def shared(self, name: str) -> ControlGroups:
        """Create the group that all sandboxes share for CPU time; `weigh` sets its weight against other processes.

        Niceness alone is not enough: with autogroup scheduling it counts only within a session, and any command can start a
        new session.
        """
        parent = self.parents.get("cpu")
        if parent is None or self.unified:  # version 2: the group of each sandbox has the weight
            return ControlGroups()
        return self._make(parent, name, {})

    def for_sandbox(self, name: str, limits: Limits, *, nice: int) -> ControlGroups:
        """Create the groups of one sandbox. Without a memory controller, the limit holds per process; other limits are lost."""
        quota = None if limits.cpus is None else int(limits.cpus * CPU_PERIOD_US)
        memory = None if limits.memory_mb is None else limits.memory_mb << 20
        wanted: dict[str, dict[str, str | int | None]] = {"pids": {"pids.max": limits.processes}}
        if self.unified:
            wanted["memory"] = {"memory.max": memory}
            wanted["cpu"] = {
                "cpu.max": None if quota is None else f"{quota} {CPU_PERIOD_US}",
                "cpu.weight": max(1, round(100 * NICE_STEP**-nice)) if nice else None,
            }
        else:
            wanted["memory"] = {"memory.limit_in_bytes": memory}
            wanted["cpu"] = {"cpu.cfs_quota_us": quota, "cpu.shares": None if quota is None else _shares(nice)}
        folders: dict[Path, None] = {}
        rlimits: dict[int, int] = {}
        for controller, settings in wanted.items():
            given = {file: str(value) for file, value in settings.items() if value is not None}
            if not given:
                continue
            parent = self.parents.get(controller)
            groups = ControlGroups() if parent is None else self._make(parent, name, given)
            folders |= dict.fromkeys(groups.folders)
            if not groups.folders and controller == "memory" and memory is not None:
                rlimits[resource.RLIMIT_DATA] = memory
        return ControlGroups(folders=tuple(folders), rlimits=rlimits)

    def _make(self, parent: Path, name: str, settings: Mapping[str, str]) -> ControlGroups:
        folder = parent / (PREFIX + name)
        try:
            folder.mkdir(exist_ok=True)
            for file, value in settings.items():
                (folder / file).write_text(value)
        except OSError:  # best effort: the sandbox runs without this limit
            with contextlib.suppress(OSError):
                folder.rmdir()
            return ControlGroups()
        return ControlGroups(folders=(folder,))

    def leftovers(self) -> list[Path]:
        """Return the groups that any run created here."""
        found: dict[Path, None] = {}
        for parent in self.parents.values():
            found |= dict.fromkeys(parent.glob(PREFIX + "*"))
        return list(found)


def weigh(shared: ControlGroups, *, nice: int, sandboxes: int) -> None:
    """Set the weight of the shared group: one process with niceness `nice` per sandbox."""
    for folder in shared.folders:
        with contextlib.suppress(OSError):
            (folder / "cpu.shares").write_text(_shares(nice, max(1, sandboxes)))


def _shares(nice: int, count: int = 1) -> str:
    return str(max(2, round(1024 * count * NICE_STEP**-nice)))


def remove_group(folder: Path) -> None:
    """Remove an empty group, with retries until the kernel has released its last process."""
    for _ in range(REMOVE_TRIES):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:  # EBUSY
            time.sleep(0.005)
        else:
            return

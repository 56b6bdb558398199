"""Control groups of sandboxes, version 2 where it is delegated, else version 1, else none."""

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
"""The kernel's own ratio between the weights of neighbouring nice values."""
REMOVE_TRIES: Final = 200
PREFIX: Final = "rl_agent-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroups:
    """The groups of one sandbox (or of all sandboxes together), and what had to be done without groups."""

    folders: Sequence[Path] = ()
    rlimits: Mapping[int, int] = field(default_factory=dict)
    """Resource limits that stand in for missing controllers."""

    def remove(self) -> None:
        """Remove the (empty) groups; the kernel needs a moment after the last process."""
        for folder in self.folders:
            remove_group(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Controllers:
    """Where this process may make groups: one folder a controller, or none."""

    parents: Mapping[str, Path]
    unified: bool

    @staticmethod
    def find() -> Controllers:
        """Look up this process's own groups; groups of ours are made below them."""
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
        """What bounds sandboxes here, for the log."""
        kind = f"control groups version {2 if self.unified else 1}"
        found = [
            f"{what} by {kind}" if controller in self.parents else f"{what} {instead}"
            for controller, what, instead in (
                ("memory", "memory", "a process only (RLIMIT_DATA)"),
                ("pids", "processes", "not bounded"),
                ("cpu", "CPU time", "not bounded"),
            )
        ]
        return f"{', '.join(found)}; disk by the size of their memory file systems; time by their lifetime"

    def shared(self, name: str) -> ControlGroups:
        """One group for the CPU time of all sandboxes together; `weigh` says how much they get against the machine's rest.

        Autogroup scheduling makes plain niceness count only within a session, which every command of an agent may leave;
        a group's weight has no such hole.
        """
        parent = self.parents.get("cpu")
        if parent is None or self.unified:  # unified: a process is in one group, its sandbox's, which has the weight
            return ControlGroups()
        return self._make(parent, name, {})

    def for_sandbox(self, name: str, limits: Limits, *, nice: int) -> ControlGroups:
        """The groups that bound one sandbox. Without a controller for it, memory is bounded a process, the rest is not."""
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
        except OSError:  # best effort: the sandbox runs without this bound
            with contextlib.suppress(OSError):
                folder.rmdir()
            return ControlGroups()
        return ControlGroups(folders=(folder,))

    def leftovers(self) -> list[Path]:
        """Groups that any run of ours made here."""
        found: dict[Path, None] = {}
        for parent in self.parents.values():
            found |= dict.fromkeys(parent.glob(PREFIX + "*"))
        return list(found)


def weigh(shared: ControlGroups, *, nice: int, sandboxes: int) -> None:
    """Let the shared group weigh as much as one process of nice `nice` for each sandbox in it."""
    for folder in shared.folders:
        with contextlib.suppress(OSError):
            (folder / "cpu.shares").write_text(_shares(nice, max(1, sandboxes)))


def _shares(nice: int, count: int = 1) -> str:
    return str(max(2, round(1024 * count * NICE_STEP**-nice)))


def remove_group(folder: Path) -> None:
    """Remove an empty group."""
    for _ in range(REMOVE_TRIES):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:  # EBUSY until the kernel has let go of the last process
            time.sleep(0.005)
        else:
            return

"""The folders that sandboxes use while they run, named after the process that owns them."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Final

LABEL: Final = "rl_agent_boot"
"""Metadata key of the label."""


def state_folder(configured: str | None) -> Path:
    """Where run folders are made: as configured, or a folder of this user's in the system's temporary one."""
    path = Path(configured) if configured else Path(tempfile.gettempdir(), f"rl_agent-sandboxes-{os.getuid()}")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to another user")
    return path


def owner_tag() -> str:
    """This process's number and start time: together unique while the machine runs."""
    return f"{os.getpid()}-{_start_time(os.getpid())}"


def is_dead(name: str) -> bool:
    """Whether the process in an `<owner_tag>-<id>` name is gone. Names of another form are never called dead."""
    pid, _, rest = name.partition("-")
    started = rest.partition("-")[0]
    return pid.isdigit() and started.isdigit() and _start_time(int(pid)) != started


def remove_dead(folder: Path) -> int:
    """Remove the run folders of dead owners; returns how many there were."""
    count = 0
    for path in folder.iterdir():
        if is_dead(path.name):
            remove_tree(path)
            count += 1
    return count


def remove_tree(path: Path) -> None:
    """Remove a run folder, with what an overlay leaves in it that only root can list."""
    if os.geteuid() != 0:
        for folder, names, _ in os.walk(path):
            for name in names:
                with contextlib.suppress(OSError):
                    if not Path(folder, name).is_symlink():
                        Path(folder, name).chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)


def _start_time(pid: int) -> str | None:
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return None


class LiveRecords:
    """The records in one folder, which all processes of this machine share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of_boot(self) -> str:
        """A new label, on record until `forget`."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        label = f"{owner_tag()}-{secrets.token_hex(8)}"
        (self._folder / label).touch(mode=0o600)
        return label

    def orphans(self) -> list[str]:
        """Labels of owners that are gone."""
        if not self._folder.is_dir():
            return []
        return sorted(path.name for path in self._folder.iterdir() if is_dead(path.name))

    def forget(self, label: str) -> None:
        """The sandbox is gone."""
        (self._folder / label).unlink(missing_ok=True)

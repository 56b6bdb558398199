"""The sandboxes of this machine's processes that run elsewhere, written down before they are asked for.

A record is made before the boot and removed once the sandbox is, and names the owner by process number and start time. What is on
record of an owner that is gone is what the next start removes, be it that it was killed, or that it could not remove it; each names its sandbox by a label, which the provider can look up even if the
owner died before it heard the sandbox's id.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from rl_agent.sandboxes.state import is_dead, owner_tag

if TYPE_CHECKING:
    from pathlib import Path

LABEL: Final = "rl_agent_boot"
"""Metadata key of the label."""


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

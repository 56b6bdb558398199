"""The sandboxes of this machine's processes that run elsewhere, written down before they are asked for.

A record is made before the boot and removed after the end, and names the owner by process number and start time. A killed
owner's records are what the next start removes; each names its sandbox by a label, which the provider can look up even if the
owner died before it heard the sandbox's id.
"""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rl_agent.sandboxes.state import is_dead, owner_tag

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LABEL: Final = "rl_agent_boot"
"""Metadata key of the label."""


class LiveRecords:
    """The records in one folder, which all processes of this machine share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def of_boot(self) -> Iterator[str]:
        """A new label, on record for as long as the context lasts."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        label = f"{owner_tag()}-{secrets.token_hex(8)}"
        record = self._folder / label
        record.touch(mode=0o600)
        try:
            yield label
        finally:
            record.unlink(missing_ok=True)

    def orphans(self) -> list[str]:
        """Labels of owners that are gone."""
        if not self._folder.is_dir():
            return []
        return sorted(path.name for path in self._folder.iterdir() if is_dead(path.name))

    def forget(self, label: str) -> None:
        """The sandbox is gone."""
        (self._folder / label).unlink(missing_ok=True)

"""Finished rollouts on disk, kept until a checkpoint holds their step, so that a killed run does not repeat them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from rl_agent.errors import ConfigError
from rl_agent.rollout import records

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rl_agent.rollout.group import Rollout

log = logging.getLogger(__name__)


class Buffer:
    """Folder with two files per rollout, see `records`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, rollout: Rollout) -> None:
        """Write a rollout. A cancelled call leaves no file. Raises OSError, for example if the disk is full."""
        writing = asyncio.get_running_loop().run_in_executor(None, records.save_one, self._folder, rollout)
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            writing.add_done_callback(lambda _: self.discard([rollout.rollout_id]))
            raise

    def load(self, rollout_id: str) -> Rollout | None:
        """Return a rollout, or None if its files are missing or incomplete."""
        try:
            return records.load_one(self._folder, rollout_id)
        except ConfigError as error:
            log.warning("%s; it is run again", error)
            return None

    def discard(self, rollout_ids: Iterable[str]) -> None:
        """Remove rollouts. Missing ones are ignored."""
        for rollout_id in rollout_ids:
            records.remove_one(self._folder, rollout_id)

    def keep_only(self, rollout_ids: Iterable[str]) -> None:
        """Remove all other rollouts: those that a killed run did not enter into its ledger."""
        records.remove_others(self._folder, set(rollout_ids))

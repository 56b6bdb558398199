"""Finished rollouts on disk, one by one, until a checkpoint holds the step that they train: a killed run need not do them again."""

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
    """A folder with two files a rollout: see `records`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, rollout: Rollout) -> None:
        """Write it; a call that is cancelled leaves nothing. Raises OSError, for example when the disk is full."""
        writing = asyncio.get_running_loop().run_in_executor(None, records.save_one, self._folder, rollout)
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            writing.add_done_callback(lambda _: self.discard([rollout.rollout_id]))
            raise

    def load(self, rollout_id: str) -> Rollout | None:
        """The rollout as it was; None if it is not there whole."""
        try:
            return records.load_one(self._folder, rollout_id)
        except ConfigError as error:
            log.warning("%s; it is run again", error)
            return None

    def discard(self, rollout_ids: Iterable[str]) -> None:
        """Remove some; those that are not there do not matter."""
        for rollout_id in rollout_ids:
            records.remove_one(self._folder, rollout_id)

    def keep_only(self, rollout_ids: Iterable[str]) -> None:
        """Remove all others: what a killed run had not entered into its ledger."""
        records.remove_others(self._folder, set(rollout_ids))

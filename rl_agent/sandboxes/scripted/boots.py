"""Boots of sandboxes that outlive this process: slots, retries, and records with which a later start removes them."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from rl_agent.errors import ConfigError, SandboxError
from rl_agent.sandboxes.state import BootGate, LiveRecords, state_folder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from rl_agent.config.sandbox import RemoteSandboxConfig

    End = Callable[[], Awaitable[object]]

log = logging.getLogger(__name__)
T = TypeVar("T")
END_S: Final = 60.0


class Boots:
    """The boots of one provider."""

    def __init__(self, config: RemoteSandboxConfig, name: str) -> None:
        """`name`: folder of the provider in the state folder."""
        folder = state_folder(config.state_dir) / name
        self.records: Final = LiveRecords(folder / "live")
        self._gate = BootGate(folder / "boots", concurrency=config.boot_concurrency, per_s=config.boots_per_s)
        self._retries = config.boot_retries
        self._timeout_s = config.boot_timeout_s

    async def first(self, boot: Callable[[int], Awaitable[T]], end: End) -> T:
        """Return the first boot that succeeds, given its number. After a failed one, `end` removes what it left."""
        for number in range(self._retries + 1):
            try:
                async with self._gate.turn(), asyncio.timeout(self._timeout_s):
                    return await boot(number)
            except TimeoutError as error:
                failed = SandboxError(f"the sandbox was not ready within {self._timeout_s:g} s")
                failed.__cause__ = error
            except SandboxError as error:
                failed = error
            await self._ended(end)
            if number == self._retries:
                raise failed
            log.info("boot %d of %d failed: %s", number + 1, self._retries + 1, failed)
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def recorded(self, label: str, end: End) -> AsyncIterator[None]:
        """Call `end` when the context ends, then drop the record. If `end` fails, the record stays for the next start."""
        try:
            yield
        finally:
            # A cancelled caller waits too: a leaked sandbox costs until its lifetime is over.
            await asyncio.shield(self._finish(label, end))

    async def _finish(self, label: str, end: End) -> None:
        if await self._ended(end):
            self.records.forget(label)

    async def _ended(self, end: End) -> bool:
        try:
            async with asyncio.timeout(END_S):
                await end()
        except (TimeoutError, SandboxError, ConfigError) as error:
            log.warning("a sandbox was not removed and runs until its lifetime is over: %s", error)
            return False
        return True

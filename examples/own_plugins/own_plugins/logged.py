"""Local sandboxes that write down every boot: a provider that adds to one of rl_agent's."""

from __future__ import annotations

import json
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_agent.sandboxes.local.provider import LocalProvider, LocalSandboxConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rl_agent.sandboxes.base import Sandbox


@dataclass(kw_only=True)
class LoggedSandboxConfig(LocalSandboxConfig):
    """Local sandboxes with a log."""

    log: str = "boots.jsonl"
    """File that gets one line per boot."""

    def build(self) -> LoggedProvider:
        """Return the provider."""
        return LoggedProvider(self)


class LoggedProvider(LocalProvider):
    """See the module."""

    def __init__(self, config: LoggedSandboxConfig) -> None:
        super().__init__(config)
        self._log = Path(config.log)

    @asynccontextmanager
    async def boot(self, image: str, **options: Any) -> AsyncIterator[Sandbox]:
        """Boot a sandbox. See `rl_agent.sandboxes.base.SandboxProvider`."""
        started = time.monotonic()
        async with super().boot(image, **options) as sandbox:
            line = {"id": sandbox.id, "image": image, "seconds": round(time.monotonic() - started, 3)}
            with self._log.open("a") as file:
                file.write(json.dumps(line) + "\n")
            yield sandbox

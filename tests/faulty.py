"""Sandboxes behind a gateway that does to requests what networks, proxies and clouds do."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.local import e2b_provider, gateway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rl_agent.sandboxes.base import Sandbox
    from rl_agent.sandboxes.gateway.server import Gateway
    from tests.gateway_faults import Fault

CREATE = "POST /(v2/)?sandboxes"
START = "POST /process.Process/Start"
UPLOAD = "POST /files"
RUN = "echo x >>/tmp/ran; echo out; echo err >&2; exit 3"
END = "DELETE /sandboxes/[^/]+"
DOWNLOAD = "GET /files"


@asynccontextmanager
async def faulty(folder: Path, *faults: Fault, **changes: Any) -> AsyncIterator[tuple[Gateway, Sandbox]]:
    """A sandbox behind a gateway with faults; afterwards it is gone, and off the record."""
    async with gateway(folder, faults=faults) as opened:
        provider = e2b_provider(opened.url, folder, **changes)
        async with provider.boot("host", lifetime_s=120) as sandbox:
            yield opened, sandbox
        assert opened.boxes.all() == []
        assert list((folder / "e2b" / "e2b" / "live").iterdir()) == []


async def runs(opened: Gateway) -> int:
    """How often RUN ran, asked past the faults."""
    (box,) = opened.boxes.all()
    return int((await box.sandbox.exec("cat /tmp/ran 2>/dev/null | wc -l", timeout=60)).stdout)

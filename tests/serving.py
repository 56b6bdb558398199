"""Serves an aiohttp application to a test, on a free port of loopback."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def serving(app: web.Application, *, shutdown_timeout: float = 60.0) -> AsyncIterator[int]:
    """Its port. `shutdown_timeout`: seconds that requests may take to end."""
    runner = web.AppRunner(app, shutdown_timeout=shutdown_timeout)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()

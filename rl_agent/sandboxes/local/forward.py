"""Port forwarding from a listener in a sandbox's network namespace to a port of this host."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket

log = logging.getLogger(__name__)
READ_BYTES: Final = 1 << 16
MOST: Final = 64
"""Maximum connections. Each takes two file descriptors of a process that serves other sandboxes too; agents need a few."""


class Forward:
    """Forwarding of one listening socket, until `close`."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, listener: socket.socket) -> None:
        """Accept connections on `listener` and take ownership of it."""
        self._server = await asyncio.start_server(self._serve, sock=listener)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._tasks) >= MOST:
            writer.transport.abort()
            return
        self._tasks.add(task)
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_pump(reader, up_writer))
                    group.create_task(_pump(up_reader, writer))
            finally:
                up_writer.close()
        except OSError as error:
            log.warning("port %d of this host is unreachable from a sandbox: %s", self._port, error)
        except asyncio.CancelledError:
            pass  # by close(); asyncio's server would log it as an error
        finally:
            writer.close()
            self._tasks.discard(task)

    async def close(self) -> None:
        """Close the listener and every connection."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(READ_BYTES):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

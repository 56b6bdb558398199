"""Collects what a command prints: all of a short output, head and tail of a long one."""

from __future__ import annotations

import asyncio
import os
from typing import Final

READ_BYTES: Final = 1 << 16


class Output:
    """The reading end of a command's stdout or stderr, kept within `limit` bytes of memory."""

    def __init__(self, fd: int, limit: int) -> None:
        os.set_blocking(fd, False)
        self._fd: int | None = fd
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fd, self._on_readable)

    @property
    def open(self) -> bool:
        """Whether some process still holds the writing end."""
        return self._fd is not None

    def _on_readable(self) -> None:
        self._read_once()

    def _read_once(self) -> bool:
        """Read what is there now; whether there may be more."""
        if self._fd is None:
            return False
        try:
            chunk = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            self.close()
            return False
        room = self._half - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:] if room < len(chunk) else b""
        if len(self._tail) > 2 * self._half:
            excess = len(self._tail) - self._half
            del self._tail[:excess]
            self._dropped += excess
        return True

    def take(self) -> bytes:
        """What has been printed by now, and what is still in the pipe; later output is read and thrown away."""
        while self._read_once():
            pass
        excess = max(0, len(self._tail) - self._half)
        dropped = self._dropped + excess
        gap = f"\n[... {dropped} bytes dropped ...]\n".encode() if dropped else b""
        taken = bytes(self._head) + gap + bytes(self._tail[excess:])
        self._head.clear()
        self._tail.clear()
        self._half = 0
        return taken

    def close(self) -> None:
        """Stop reading."""
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None

"""Output of a local sandbox's processes: collected (`Output`), or read while they run (`LocalProcess`)."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

from rl_agent.sandboxes.local.helper import Call, readable, writable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from rl_agent.errors import SandboxError
    from rl_agent.sandboxes.base import Stream

READ_BYTES: Final = 1 << 16
PIPE_BYTES: Final = 1 << 20
"""Maximum read after the process has exited; more than a pipe holds."""
KILLED: Final = 128 + 9


class Output:
    """Reader of a command's stdout or stderr that keeps at most `limit` bytes: head and tail."""

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
        """Whether a process still holds the write end."""
        return self._fd is not None

    def _on_readable(self) -> None:
        self._read_once()

    def _read_once(self) -> bool:
        """Read available data once; return whether there may be more."""
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
        """Return the output so far, including the pipe's content. Later output is read and dropped."""
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


class LocalProcess:
    """See `Process`."""

    def __init__(
        self,
        call: Call,
        *,
        pid: int,
        stdin: int | None,
        outputs: dict[int, Stream],
        gone: Callable[[], SandboxError],
        retire: Callable[[int], None],
    ) -> None:
        """Take ownership of the descriptors. `retire` gets outputs that a background process still holds at the end."""
        self._call = call
        self._pid = pid
        self._stdin = stdin
        self._outputs = outputs
        self._gone = gone
        self._retire = retire
        self._code: int | None = None
        for fd in (*outputs, *(() if stdin is None else (stdin,))):
            os.set_blocking(fd, False)

    @property
    def pid(self) -> int:
        """See `Process.pid`."""
        return self._pid

    @property
    def code(self) -> int:
        """See `Process.code`."""
        assert self._code is not None, "chunks() has not ended yet"
        return self._code

    async def chunks(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """See `Process.chunks`."""
        try:
            while self._code is None:
                await readable(self._call.fileno(), *self._outputs)
                for fd, stream in list(self._outputs.items()):
                    if data := self._read(fd):
                        yield stream, data
                self._take_end()
            for fd, stream in list(self._outputs.items()):
                for _ in range(PIPE_BYTES // READ_BYTES):
                    if not (data := self._read(fd)):
                        break
                    yield stream, data
        finally:
            self._close()

    def _read(self, fd: int) -> bytes:
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            del self._outputs[fd]
            os.close(fd)
        return data

    def _take_end(self) -> None:
        try:
            answer = self._call.take()
        except BlockingIOError:
            return
        if answer.closed:
            raise self._gone()
        self._code = int(answer.message.get("code", KILLED))

    async def write(self, data: bytes) -> None:
        """See `Process.write`."""
        view = memoryview(data)
        while view:
            if self._stdin is None:
                raise BrokenPipeError("stdin is closed")
            try:
                view = view[os.write(self._stdin, view) :]
            except BlockingIOError:
                await writable(self._stdin)

    def close_stdin(self) -> None:
        """See `Process.close_stdin`."""
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None

    def signal(self, number: int) -> None:
        """See `Process.signal`."""
        self._call.signal(number)

    def kill(self) -> None:
        """See `Process.kill`."""
        self._call.stop()

    def _close(self) -> None:
        self.close_stdin()
        for fd in self._outputs:
            self._retire(fd)
        self._outputs = {}
        self._call.close()

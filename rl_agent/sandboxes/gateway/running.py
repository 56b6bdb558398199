"""A process that a client started. Its output goes to all connected clients; it outlives them."""

from __future__ import annotations

import asyncio
import base64
import os
import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from rl_agent.errors import SandboxError
from rl_agent.sandboxes.base import Process, Stream
from rl_agent.sandboxes.gateway.wire import Code, RpcError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from rl_agent.sandboxes.base import Sandbox

QUEUED_EVENTS: Final = 8
"""Maximum per client. A slow client slows the process down instead of filling memory."""
SIGTERM: Final = 15
SIGKILL: Final = 9

Event = dict[str, Any]


class Subscriber:
    """Event queue of one connected client."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Event | RpcError | None] = asyncio.Queue()
        self._room = asyncio.Semaphore(QUEUED_EVENTS)

    async def put(self, event: Event) -> None:
        """Add an event. Waits while the queue is full."""
        await self._room.acquire()
        self._queue.put_nowait(event)

    def put_last(self, item: Event | RpcError | None) -> None:
        """Add a final item without waiting."""
        self._queue.put_nowait(item)

    async def get(self) -> Event | RpcError | None:
        """Return the next item. None or an error is the last."""
        item = await self._queue.get()
        self._room.release()
        return item

    def leave(self) -> None:
        """Wake up all producers."""
        for _ in range(QUEUED_EVENTS):
            self._room.release()


class Running:
    """A running process and its subscribers."""

    def __init__(self, process: Process, *, config: Mapping[str, Any], tag: str | None) -> None:
        self.process = process
        self.config = config
        self.tag = tag
        self._subscribers: list[Subscriber] = []
        self._last: list[Event | RpcError | None] = []
        self._deadline: asyncio.TimerHandle | None = None
        self._timed_out = False

    @contextmanager
    def subscribed(self) -> Iterator[Subscriber]:
        """Yield a subscriber that gets all further events."""
        subscriber = Subscriber()
        for item in self._last:
            subscriber.put_last(item)
        self._subscribers.append(subscriber)
        try:
            yield subscriber
        finally:
            self._subscribers.remove(subscriber)
            subscriber.leave()

    def kill_after(self, seconds: float) -> None:
        """Kill the process tree after `seconds`, and send the reason to the clients."""
        self._deadline = asyncio.get_running_loop().call_later(seconds, self._expire)

    def _expire(self) -> None:
        self._timed_out = True
        self.process.kill()

    async def pump(self) -> None:
        """Forward the output until the process exits."""
        last: list[Event | RpcError | None] = [RpcError(Code.UNAVAILABLE, "the sandbox is being removed")]
        try:
            async for stream, data in self.process.chunks():
                event = {"data": {str(stream): base64.b64encode(data).decode()}}
                for subscriber in list(self._subscribers):
                    await subscriber.put(event)
            last = self._ending(self.process.code)
        except SandboxError as error:
            last = [RpcError(Code.UNAVAILABLE, f"the connection to the sandbox is lost: {error}")]
        finally:
            if self._deadline is not None:
                self._deadline.cancel()
            self._last = last
            for subscriber in list(self._subscribers):
                for item in self._last:
                    subscriber.put_last(item)

    def _ending(self, code: int) -> list[Event | RpcError | None]:
        if self._timed_out:
            return [RpcError(Code.DEADLINE_EXCEEDED, "the command timed out and was killed")]
        exited = code <= 128
        status = f"exit status {code}" if exited else f"signal: {code - 128}"
        return [{"end": {"exitCode": code, "exited": exited, "status": status}}, None]


class ExecProcess:
    """A `Process` over `Sandbox.exec`, for providers that cannot stream: output arrives at the end, stdin is empty."""

    def __init__(
        self,
        sandbox: Sandbox,
        argv: Sequence[str],
        *,
        user: str,
        env: Mapping[str, str],
        cwd: str | None,
        lifetime_s: float,
    ) -> None:
        self._sandbox = sandbox
        self._command = f"exec {shlex.join(argv)}"
        self._options = {"user": user, "env": env, "cwd": cwd, "timeout": lifetime_s}
        self._killed = asyncio.Event()
        self._code: int | None = None
        self._pid = int.from_bytes(os.urandom(3)) + (1 << 22)  # above the kernel's process ids

    @property
    def pid(self) -> int:
        """Random number in place of the unknown process id."""
        return self._pid

    @property
    def code(self) -> int:
        """See `Process.code`."""
        assert self._code is not None, "chunks() has not ended yet"
        return self._code

    async def chunks(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """See `Process.chunks`."""
        run = asyncio.ensure_future(self._sandbox.exec(self._command, **self._options))  # type: ignore[arg-type]
        kill = asyncio.ensure_future(self._killed.wait())
        try:
            await asyncio.wait((run, kill), return_when=asyncio.FIRST_COMPLETED)
        finally:
            kill.cancel()
            if not run.done():
                run.cancel()
            await asyncio.wait((run, kill))
        if run.cancelled():
            self._code = 128 + SIGKILL
            return
        result = run.result()
        self._code = 128 + SIGKILL if result.timed_out else result.exit_code
        for stream, data in ((Stream.STDOUT, result.stdout), (Stream.STDERR, result.stderr)):
            if data:
                yield stream, data

    async def write(self, data: bytes) -> None:
        """Raise BrokenPipeError."""
        raise BrokenPipeError(f"this provider does not support input for a running process ({len(data)} bytes)")

    def close_stdin(self) -> None:
        """Do nothing: stdin is empty."""

    def signal(self, number: int) -> None:
        """Kill the process for SIGTERM or SIGKILL."""
        if number in (SIGTERM, SIGKILL):
            self.kill()

    def kill(self) -> None:
        """See `Process.kill`."""
        self._killed.set()

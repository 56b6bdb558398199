"""A gateway that does to requests what networks, proxies and clouds do, each a given number of times."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from aiohttp import web
from typing_extensions import override

from rl_agent.sandboxes.gateway.server import Gateway

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    Write = Callable[[bytes | bytearray | memoryview[int]], Coroutine[Any, Any, None]]


class FaultKind(StrEnum):
    """What happens to a request."""

    STATUS = "status"
    """It is answered with `status`, and nothing is done."""
    DELAY = "delay"
    """It is served after `seconds`."""
    LOSE_REQUEST = "lose_request"
    """The connection breaks; nothing is done."""
    LOSE_ANSWER = "lose_answer"
    """Everything is done; then the connection breaks."""
    CUT = "cut"
    """The connection breaks after `frames` whole frames of the answer."""
    HALF_FRAME = "half_frame"
    """The same, in the middle of the next frame."""
    TRUNCATE = "truncate"
    """Half of the request's body arrives; then the connection breaks, and nothing is done."""
    HALF_FILE = "half_file"
    """The connection breaks in the middle of a file that is downloaded."""
    SHORT_FILE = "short_file"
    """A file that is downloaded ends in its middle, as if it were whole."""
    KILL_BEFORE = "kill_before"
    """The box dies before the request is served."""
    KILL_AFTER = "kill_after"
    """The box dies when it has been served."""


@dataclass(slots=True, kw_only=True)
class Fault:
    """One kind of fault, `times` times, for requests that match."""

    kind: FaultKind
    route: str
    """Regular expression over `METHOD /path`."""
    times: int = 1
    skip: int = 0
    """Requests that match and are left alone before."""
    status: int = 503
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = "injected"
    seconds: float = 0.0
    frames: int = 0
    seen: int = 0
    """Requests that matched so far."""

    def applies(self, line: str) -> bool:
        """Whether this request is hit; counts it."""
        if re.fullmatch(self.route, line) is None:
            return False
        self.seen += 1
        return self.skip < self.seen <= self.skip + self.times


HITS = web.RequestKey("hits", list[Fault])
"""Faults that the middleware chose for this request."""


class FaultyGateway(Gateway):
    """The real gateway, with faults between it and its clients."""

    def __init__(self, *arguments: Any, faults: Sequence[Fault], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._faults = faults

    @override
    def app(self) -> web.Application:
        app = super().app()
        app.middlewares.insert(1, self._inject)
        app.on_response_prepare.append(self._break_answer)
        return app

    @web.middleware
    async def _inject(self, request: web.Request, handler: Any) -> web.StreamResponse:
        hits = [fault for fault in self._faults if fault.applies(f"{request.method} {request.path}")]
        request[HITS] = hits
        for fault in hits:
            answer = await self._before(fault, request)
            if answer is not None:
                return answer
        response: web.StreamResponse = await handler(request)
        for fault in hits:
            if fault.kind is FaultKind.KILL_AFTER:
                await self._kill(request)
            if fault.kind is FaultKind.LOSE_ANSWER:
                _break(request)
        return response

    async def _before(self, fault: Fault, request: web.Request) -> web.Response | None:
        match fault.kind:
            case FaultKind.STATUS:
                body = {"code": fault.status, "message": fault.message}
                return web.json_response(body, status=fault.status, headers=fault.headers)
            case FaultKind.DELAY:
                await asyncio.sleep(fault.seconds)
            case FaultKind.LOSE_REQUEST:
                _break(request)
            case FaultKind.TRUNCATE:
                await request.content.read((request.content_length or 2) // 2)
                _break(request)
            case FaultKind.KILL_BEFORE:
                await self._kill(request)
            case _:
                pass
        return None

    async def _kill(self, request: web.Request) -> None:
        wanted = request.headers.get("E2b-Sandbox-Id")
        for box in self.boxes.all():
            if box.id == wanted:
                await self.boxes.remove(box)

    async def _break_answer(self, request: web.Request, response: web.StreamResponse) -> None:
        """Replace the `write` of an answer that is to end early. Each frame of a stream is one write."""
        if isinstance(response, web.Response):  # answered in one piece
            return
        for fault in request.get(HITS, []):
            if fault.kind in (FaultKind.CUT, FaultKind.HALF_FRAME):
                half = fault.kind is FaultKind.HALF_FRAME
                response.write = _cut(request, response.write, fault.frames, half)  # type: ignore[assignment]
            if fault.kind in (FaultKind.HALF_FILE, FaultKind.SHORT_FILE):
                size = response.content_length or 0
                breaks = fault.kind is FaultKind.HALF_FILE
                response.write = _halved(request, response.write, size // 2, breaks)  # type: ignore[assignment]
                response.content_length = size if breaks else size // 2


def _cut(request: web.Request, write: Write, frames: int, half: bool) -> Write:
    left = frames

    async def cut(data: bytes | bytearray | memoryview[int]) -> None:
        nonlocal left
        if left == 0:
            if half:
                await write(data[: len(data) // 2])
            _break(request)
        left -= 1
        await write(data)

    return cut


def _halved(request: web.Request, write: Write, size: int, breaks: bool) -> Write:
    left = size

    async def halved(data: bytes | bytearray | memoryview[int]) -> None:
        nonlocal left
        await write(data[:left])
        left -= len(data[:left])
        if breaks and left == 0:
            _break(request)

    return halved


def _break(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError("broken by fault injection")

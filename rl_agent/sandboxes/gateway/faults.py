"""Faults on purpose, for tests of clients: what networks, proxies and clouds do to requests, each a given number of times."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from aiohttp import web

from rl_agent.sandboxes.gateway.wire import CUT_KEY, HALF_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiohttp.typedefs import Middleware

    from rl_agent.sandboxes.gateway.boxes import Boxes


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


def inject(faults: Sequence[Fault], boxes: Boxes) -> Middleware:
    """The middleware that does it."""

    @web.middleware
    async def middleware(request: web.Request, handler: Any) -> web.StreamResponse:
        hit = [fault for fault in faults if fault.applies(f"{request.method} {request.path}")]
        for fault in hit:
            answer = await _before(fault, request, boxes)
            if answer is not None:
                return answer
        response: web.StreamResponse = await handler(request)
        for fault in hit:
            if fault.kind is FaultKind.KILL_AFTER:
                await _kill(request, boxes)
            if fault.kind is FaultKind.LOSE_ANSWER:
                _break(request)
        return response

    return middleware


async def _before(fault: Fault, request: web.Request, boxes: Boxes) -> web.Response | None:
    match fault.kind:
        case FaultKind.STATUS:
            body = {"code": fault.status, "message": fault.message}
            return web.json_response(body, status=fault.status, headers=fault.headers)
        case FaultKind.DELAY:
            await asyncio.sleep(fault.seconds)
        case FaultKind.LOSE_REQUEST:
            _break(request)
        case FaultKind.CUT:
            request[CUT_KEY] = fault.frames
        case FaultKind.HALF_FRAME:
            request[CUT_KEY] = -1 - fault.frames
        case FaultKind.TRUNCATE:
            await request.content.read((request.content_length or 2) // 2)
            _break(request)
        case FaultKind.HALF_FILE | FaultKind.SHORT_FILE:
            request[HALF_KEY] = fault.kind is FaultKind.HALF_FILE
        case FaultKind.KILL_BEFORE:
            await _kill(request, boxes)
        case _:
            pass
    return None


def _break(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError("broken by fault injection")


async def _kill(request: web.Request, boxes: Boxes) -> None:
    wanted = request.headers.get("E2b-Sandbox-Id")
    for box in boxes.all():
        if box.id == wanted:
            await boxes.remove(box)

"""E2B's wire protocol: errors, users, and the frames of Connect streams in JSON."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import struct
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from aiohttp import StreamReader

HEADER: Final = struct.Struct(">BI")
LIMITS_KEY: Final = "rl_agent_limits"
ASSETS_KEY: Final = "rl_agent_assets"
"""Metadata keys of our own client, for options that E2B's API does not have."""
COMPRESSED: Final = 1
END_OF_STREAM: Final = 2


class Code(StrEnum):
    """Connect's error codes."""

    INVALID_ARGUMENT = "invalid_argument"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    NOT_FOUND = "not_found"
    ALREADY_EXISTS = "already_exists"
    PERMISSION_DENIED = "permission_denied"
    UNAUTHENTICATED = "unauthenticated"
    UNIMPLEMENTED = "unimplemented"
    UNAVAILABLE = "unavailable"
    INTERNAL = "internal"


STATUS: Final[Mapping[Code, int]] = {
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 408,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.UNAUTHENTICATED: 401,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
    Code.INTERNAL: 500,
}


class RpcError(Exception):
    """Error that is answered as a Connect error."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code

    def as_json(self) -> dict[str, str]:
        """Return the protocol's form."""
        return {"code": str(self.code), "message": str(self)}


class HttpError(Exception):
    """Error that is answered with an HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def not_found(sandbox_id: str) -> HttpError:
    """Return the error of E2B's proxy for a missing sandbox. Clients look for these words."""
    return HttpError(502, f"The sandbox was not found: {sandbox_id}")


@web.middleware
async def errors(request: web.Request, handler: Any) -> web.StreamResponse:
    """Middleware that turns errors into answers."""
    try:
        response: web.StreamResponse = await handler(request)
    except RpcError as error:
        return web.json_response(error.as_json(), status=STATUS[error.code])
    except HttpError as error:
        return web.json_response({"code": error.status, "message": str(error)}, status=error.status)
    return response


async def json_body(request: web.Request) -> dict[str, Any]:
    """Return the request's JSON object."""
    try:
        value = json.loads(await request.read() or b"{}")
    except ValueError as error:
        raise HttpError(400, f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise HttpError(400, "the body is not a JSON object")
    return value


async def frames(content: StreamReader, limit: int) -> AsyncIterator[dict[str, Any]]:
    """Yield the messages of a request stream."""
    while True:
        head = await content.read(1)
        if not head:
            return
        head += await content.readexactly(HEADER.size - 1)
        flags, size = HEADER.unpack(head)
        if flags & COMPRESSED:
            raise RpcError(Code.UNIMPLEMENTED, "compressed messages are not supported")
        if size > limit:
            raise RpcError(Code.INVALID_ARGUMENT, f"the message has {size} bytes, more than {limit}")
        body = await content.readexactly(size)
        if flags & END_OF_STREAM:
            return
        try:
            message = json.loads(body)
        except ValueError as error:
            raise RpcError(Code.INVALID_ARGUMENT, f"the message is not JSON: {error}") from None
        if not isinstance(message, dict):
            raise RpcError(Code.INVALID_ARGUMENT, "the message is not a JSON object")
        yield message


def decode(text: Any) -> bytes:
    """Decode the bytes in a JSON message."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise RpcError(Code.INVALID_ARGUMENT, "bytes must be in base64") from None


def frame(message: Mapping[str, Any], flags: int = 0) -> bytes:
    """Return the frame of a message."""
    body = json.dumps(message).encode()
    return HEADER.pack(flags, len(body)) + body


def last_frame(error: RpcError | None = None) -> bytes:
    """Return the frame that ends a stream."""
    return frame({} if error is None else {"error": error.as_json()}, END_OF_STREAM)


async def open_stream(request: web.Request) -> web.StreamResponse:
    """Start a stream of frames. Its `write` raises ConnectionResetError if the client has disconnected."""
    response = web.StreamResponse(headers={"Content-Type": "application/connect+json"})
    await response.prepare(request)
    return response


def same(given: str, wanted: str) -> bool:
    """Compare secrets in constant time."""
    return hmac.compare_digest(given.encode(), wanted.encode())


def user_of(request: web.Request, default: str) -> str:
    """Return the user of a command, from the Authorization header."""
    header = request.headers.get("Authorization", "")
    if not header.startswith("Basic "):
        return default
    try:
        name = base64.b64decode(header[6:], validate=True).decode().partition(":")[0]
    except (binascii.Error, UnicodeDecodeError):
        raise RpcError(Code.UNAUTHENTICATED, "invalid Authorization header") from None
    return named_user(name, default)


def named_user(name: str | None, default: str) -> str:
    """Return the user of a name. E2B's `user` is our default user."""
    return default if name in (None, "", "user") else str(name)

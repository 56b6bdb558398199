"""Who may do what: the API key, and a box's own token."""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from rl_agent.sandboxes.gateway.wire import Code, HttpError, RpcError, not_found

if TYPE_CHECKING:
    from aiohttp.typedefs import Middleware

    from rl_agent.sandboxes.gateway.boxes import Box, Boxes

CONTROL: Final = ("/sandboxes", "/v2/sandboxes", "/rl_agent/")


def require_key(key: str) -> Middleware:
    """Refuses control-plane requests without the key."""

    @web.middleware
    async def check(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path.startswith(CONTROL) and not _same(request.headers.get("X-API-KEY", ""), key):
            raise HttpError(401, "the API key (X-API-KEY) is missing or wrong")
        response: web.StreamResponse = await handler(request)
        return response

    return check


def box_of(request: web.Request, boxes: Boxes) -> Box:
    """The box that a data-plane request is for."""
    box_id = request.headers.get("E2b-Sandbox-Id")
    if box_id is None:  # a client that tells sandboxes apart by host name: <port>-<id>.<domain>
        box_id = request.host.partition(".")[0].partition("-")[2]
    if not box_id:
        raise not_found("none was named (E2b-Sandbox-Id)")
    box = boxes.get(box_id)
    if not _same(request.headers.get("X-Access-Token", ""), box.token):
        raise HttpError(401, "the sandbox's access token (X-Access-Token) is missing or wrong")
    return box


def user_of(request: web.Request, default: str) -> str:
    """Who a command runs as; E2B's own `user` is our default one."""
    header = request.headers.get("Authorization", "")
    if not header.startswith("Basic "):
        return default
    try:
        name = base64.b64decode(header[6:], validate=True).decode().partition(":")[0]
    except (binascii.Error, UnicodeDecodeError):
        raise RpcError(Code.UNAUTHENTICATED, "the Authorization header is not understood") from None
    return named_user(name, default)


def named_user(name: str | None, default: str) -> str:
    """The same for a name that came as a query parameter."""
    return default if name in (None, "", "user") else str(name)


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())

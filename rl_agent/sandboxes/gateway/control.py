"""E2B's control plane: create, find, extend and kill boxes."""

from __future__ import annotations

import contextlib
import json
import re
import urllib.parse
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from rl_agent.config.sandbox import Network
from rl_agent.sandboxes.base import Limits
from rl_agent.sandboxes.gateway.boxes import ENVD_VERSION, Box, Boxes, Order
from rl_agent.sandboxes.gateway.wire import ASSETS_KEY, LIMITS_KEY, HttpError, json_body

if TYPE_CHECKING:
    from rl_agent.config.gateway import GatewayConfig
    from rl_agent.sandboxes.gateway.assets import AssetStore

KEY_FORM: Final = re.compile(r"[a-z0-9-]{1,255}")
PAGE: Final = 100


class ControlPlane:
    """Handlers of the control plane."""

    def __init__(self, config: GatewayConfig, boxes: Boxes, assets: AssetStore) -> None:
        self._config = config
        self._boxes = boxes
        self._assets = assets

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for both versions of the API."""
        found = [web.get("/sandboxes", self.list), web.get("/v2/sandboxes", self.list)]
        for base in ("/sandboxes", "/v2/sandboxes"):
            found += [
                web.post(base, self.create),
                web.get(base + "/{id}", self.info),
                web.delete(base + "/{id}", self.kill),
                web.post(base + "/{id}/timeout", self.set_timeout),
                web.post(base + "/{id}/refreshes", self.refresh),
                web.post(base + "/{id}/connect", self.connect),
                web.get(base + "/{id}/metrics", self.metrics),
                web.post(base + "/{id}/{action:pause|resume|fork|snapshots}", self.unsupported),
            ]
        return found

    async def create(self, request: web.Request) -> web.Response:
        """POST /v2/sandboxes."""
        body = await json_body(request)
        key = request.headers.get("Idempotency-Key")
        if key is not None and not KEY_FORM.fullmatch(key):
            raise HttpError(400, "Idempotency-Key: must have 1 to 255 lower-case letters, digits or hyphens")
        box = await self._boxes.create(self._order(body), key)
        return web.json_response(_created(box), status=201)

    def _order(self, body: dict[str, Any]) -> Order:
        metadata = body.get("metadata") or {}
        template = str(body.get("templateID") or "base")
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            raise HttpError(400, "metadata: must map strings to strings")
        given = metadata.get(self._config.image_metadata_key)
        host = self._config.allow_host_network and body.get("allow_internet_access", True)
        return Order(
            template=template,
            image=given or self._config.images.get(template, template),
            lifetime_s=self._lifetime(body.get("timeout")),
            metadata={name: value for name, value in metadata.items() if name not in (LIMITS_KEY, ASSETS_KEY)},
            env=body.get("envVars") or {},
            assets=self._assets.named(metadata.get(ASSETS_KEY, "[]")),
            network=Network.host if host else None,
            limits=_limits(metadata.get(LIMITS_KEY)),
        )

    def _lifetime(self, seconds: Any) -> float:
        if seconds is None:
            return self._config.default_lifetime_s
        if not isinstance(seconds, int | float) or seconds < 0:
            raise HttpError(400, f"timeout: {seconds!r} is not a number of seconds")
        if seconds > self._config.max_lifetime_s:
            raise HttpError(400, f"timeout: more than {self._config.max_lifetime_s:g} s (gateway.max_lifetime_s)")
        return float(seconds)

    def _box(self, request: web.Request) -> Box:
        try:
            return self._boxes.get(request.match_info["id"])
        except HttpError as error:
            raise HttpError(404, str(error)) from None

    async def info(self, request: web.Request) -> web.Response:
        """GET /sandboxes/{id}."""
        box = self._box(request)
        return web.json_response({**box.describe(), "envdAccessToken": box.token})

    async def list(self, request: web.Request) -> web.Response:
        """GET /v2/sandboxes?metadata=&limit=&nextToken=."""
        wanted = {
            urllib.parse.unquote(name): urllib.parse.unquote(value)
            for name, value in urllib.parse.parse_qsl(request.query.get("metadata", ""))
        }
        found = [box for box in self._boxes.all() if wanted.items() <= box.order.metadata.items()]
        try:
            limit = max(1, int(request.query.get("limit", PAGE)))
            start = int(request.query.get("nextToken") or 0)
        except ValueError:
            raise HttpError(400, "limit and nextToken must be numbers") from None
        more = {"X-Next-Token": str(start + limit)} if len(found) > start + limit else {}
        return web.json_response([box.describe() for box in found[start : start + limit]], headers=more)

    async def kill(self, request: web.Request) -> web.Response:
        """DELETE /sandboxes/{id}."""
        await self._boxes.remove(self._box(request))
        return web.Response(status=204)

    async def set_timeout(self, request: web.Request) -> web.Response:
        """POST /sandboxes/{id}/timeout."""
        box = self._box(request)
        box.set_lifetime(self._lifetime((await json_body(request)).get("timeout")))
        return web.Response(status=204)

    async def refresh(self, request: web.Request) -> web.Response:
        """POST /sandboxes/{id}/refreshes: extend the lifetime, never shorten it."""
        box = self._box(request)
        self._prolong(box, (await json_body(request)).get("duration"))
        return web.Response(status=204)

    async def connect(self, request: web.Request) -> web.Response:
        """POST /sandboxes/{id}/connect: extend the lifetime, never shorten it."""
        box = self._box(request)
        self._prolong(box, (await json_body(request)).get("timeout"))
        return web.json_response(_created(box))

    def _prolong(self, box: Box, seconds: Any) -> None:
        lifetime = self._lifetime(seconds)
        if lifetime > box.remaining_s:
            box.set_lifetime(lifetime)

    async def metrics(self, request: web.Request) -> web.Response:
        """Answer with no metrics: none are recorded."""
        self._box(request)
        return web.json_response([])

    async def unsupported(self, request: web.Request) -> web.Response:
        """Refuse what sandbox providers do not support."""
        raise HttpError(501, f"{request.match_info['action']} is not supported by this gateway")


def _created(box: Box) -> dict[str, Any]:
    return {
        "templateID": box.order.template,
        "sandboxID": box.id,
        "clientID": "rl-agent",
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": box.token,
        "endAt": box.describe()["endAt"],
        "startedAt": box.describe()["startedAt"],
    }


def _limits(text: str | None) -> Limits | None:
    if text is None:
        return None
    with contextlib.suppress(AttributeError, TypeError, ValueError, RecursionError):
        values = json.loads(text)
        if all(type(value) is int or (name == "cpus" and type(value) is float) for name, value in values.items()):
            return Limits(**values)
    raise HttpError(400, f"metadata {LIMITS_KEY}: invalid: {text[:200]}")

"""The gateway's HTTP server: routes, limits and authentication."""

from __future__ import annotations

import functools
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from rl_agent.config.sandbox import is_loopback
from rl_agent.errors import ConfigError
from rl_agent.sandboxes.gateway.assets import AssetStore
from rl_agent.sandboxes.gateway.boxes import Boxes, refusing
from rl_agent.sandboxes.gateway.control import ControlPlane
from rl_agent.sandboxes.gateway.files import FileService
from rl_agent.sandboxes.gateway.processes import ProcessService
from rl_agent.sandboxes.gateway.wire import HttpError, errors, json_body, same

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from aiohttp.typedefs import Middleware

    from rl_agent.config.gateway import GatewayConfig
    from rl_agent.sandboxes.base import SandboxProvider

ANY_PORT: Final = "*"
SHUTDOWN_S: Final = 2.0
CONTROL: Final = ("/sandboxes", "/v2/sandboxes", "/rl_agent/")


class Gateway:
    """Async context that serves until its end and then removes all boxes."""

    def __init__(self, provider: SandboxProvider, config: GatewayConfig, *, key: str) -> None:
        self._config = config
        self._key = key
        self._ports, self._any_port = _exposed(config.expose)
        self.boxes = Boxes(
            provider, max_boxes=config.max_boxes, max_lifetime_s=config.max_lifetime_s, ports=self._ports
        )
        self._stack = AsyncExitStack()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Gateway:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.boxes)
            self._runner = web.AppRunner(self.app(), access_log=None, shutdown_timeout=SHUTDOWN_S)
            await self._runner.setup()
            stack.push_async_callback(self._runner.cleanup)
            try:
                await web.TCPSite(self._runner, self._config.host, self._config.port).start()
            except OSError as error:
                raise ConfigError(
                    f"gateway.port: cannot listen on {self._config.host}:{self._config.port}: {error}. Set gateway.port=0, or "
                    "gateway.host to an address of this machine."
                ) from error
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @property
    def url(self) -> str:
        """URL for clients: both `api_url` and `sandbox_url`."""
        assert self._runner is not None
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    def app(self) -> web.Application:
        """Make the web application. A subclass may add middlewares to it."""
        config = self._config
        folder = Path(config.assets_dir or Path.home() / ".cache" / "rl_agent" / "gateway_assets").expanduser()
        assets = AssetStore(folder, max_bytes=config.max_upload_mb << 20)
        app = web.Application(middlewares=[errors, _require_key(self._key)], client_max_size=config.max_body_mb << 20)
        app.add_routes([web.get("/rl_agent", self.about), web.post("/rl_agent/sandboxes/{id}/expose", self.expose)])
        for part in (assets, ControlPlane(config, self.boxes, assets)):
            app.add_routes(part.routes())
        for service in (ProcessService(config, self.boxes), FileService(config, self.boxes)):
            app.add_routes(service.routes())
        return app

    async def about(self, request: web.Request) -> web.Response:
        """Tell our own client that this is our gateway, and which ports it exposes."""
        del request
        return web.json_response({"gateway": "rl_agent", "expose_any_port": self._any_port, "ports": list(self._ports)})

    async def expose(self, request: web.Request) -> web.Response:
        """Make a port of this machine reachable from one box, if gateway.expose allows it."""
        box = self.boxes.get(request.match_info["id"])
        port: Any = (await json_body(request)).get("port")
        if not isinstance(port, int) or not 0 < port < 1 << 16:
            raise HttpError(400, f"invalid port {port!r}")
        if port not in self._ports and not self._any_port:
            raise HttpError(
                403, f"port {port} is not exposed. Start the gateway with gateway.expose=[127.0.0.1:{port}]."
            )
        with refusing(box, functools.partial(HttpError, 500)):
            return web.json_response({"url": await box.sandbox.expose(port)})


def _require_key(key: str) -> Middleware:
    """Return middleware that rejects control-plane requests without the key."""

    @web.middleware
    async def check(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path.startswith(CONTROL) and not same(request.headers.get("X-API-KEY", ""), key):
            raise HttpError(401, "the API key (X-API-KEY) is missing or invalid")
        response: web.StreamResponse = await handler(request)
        return response

    return check


def _exposed(addresses: Sequence[str]) -> tuple[list[int], bool]:
    """Return the ports that every box reaches, and whether clients may request others."""
    ports, any_port = [], False
    for text in addresses:
        host, _, port = text.rpartition(":")
        if not is_loopback(host) or not (port == ANY_PORT or port.isdigit()):
            raise ConfigError(
                f"gateway.expose: invalid entry {json.dumps(text)}. Use 127.0.0.1:<port>, or 127.0.0.1:* for any port that a client "
                "requests. Ports of other machines are not supported."
            )
        if port == ANY_PORT:
            any_port = True
        else:
            ports.append(int(port))
    return ports, any_port

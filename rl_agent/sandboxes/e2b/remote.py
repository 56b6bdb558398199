"""One sandbox of E2B through its SDK, and requests of our own gateway that the SDK does not have."""

from __future__ import annotations

import asyncio
import hashlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from rl_agent.errors import SandboxError
from rl_agent.sandboxes.base import require_sources
from rl_agent.sandboxes.scripted.failures import again
from rl_agent.sandboxes.scripted.sandbox import pack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.sandboxes.base import Asset

UPLOAD_S: Final = 1800.0
SLOWEST_BYTES_PER_S: Final = 1 << 20


class BusyError(Exception):
    """Answer with a temporary status, and perhaps a Retry-After header."""

    def __init__(self, message: str, retry_after: str | None) -> None:
        super().__init__(message)
        self.retry_after_s = float(retry_after) if retry_after is not None and retry_after.isdigit() else 0.0


class Endpoint:
    """The control plane at `url`, which may be our own gateway."""

    def __init__(self, url: str | None, *, key: str, timeout_s: float, retries: int) -> None:
        self._url = url
        self._key = key
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._retries = retries
        self._ours: bool | None = None
        self._stored: dict[tuple[str, int, int], str] = {}
        self._lock = asyncio.Lock()

    async def is_gateway(self) -> bool:
        """Return whether this is our own gateway."""
        if self._url is None:
            return False
        if self._ours is None:
            status, body = await self._json("GET", "/rl_agent")
            self._ours = status == 200 and body.get("gateway") == "rl_agent"
        return self._ours

    async def expose(self, sandbox_id: str, port: int) -> str:
        """Make a port of the gateway's machine reachable from a sandbox; return its URL there."""
        if not await self.is_gateway():
            raise SandboxError(
                f"sandboxes of {self._url or 'E2B'} cannot reach ports of this machine. Set adapter.advertise_host to a name or "
                "address of this machine that they reach, adapter.bind_host=0.0.0.0 and adapter.port."
            )
        status, body = await self._json("POST", f"/rl_agent/sandboxes/{sandbox_id}/expose", {"port": port})
        if status != 200:
            raise SandboxError(f"gateway {self._url}: port {port} is not exposed: {body.get('message', status)}")
        return str(body["url"])

    async def store(self, assets: Sequence[Asset]) -> str:
        """Upload assets that the gateway does not have. Return their names as a value for its metadata."""
        async with self._lock:
            found = [{"name": await self._store(asset), "target": asset.target} for asset in assets]
        return json.dumps(found)

    async def _store(self, asset: Asset) -> str:
        require_sources([asset])
        status = asset.source.stat()
        known = (str(asset.source), status.st_mtime_ns, status.st_size)
        if asset.source.is_file() and known in self._stored:
            return self._stored[known]
        with tempfile.TemporaryDirectory(prefix="rl_agent-asset-") as folder:
            file, kind = asset.source, f"{0o755 if status.st_mode & 0o100 else 0o644:o}"
            if asset.source.is_dir():
                file, kind = Path(folder, "asset.tar"), "tar"
                await asyncio.to_thread(pack, asset.source, file)
            name = f"{await asyncio.to_thread(_digest, file)}.{kind}"
            if (await self._json("GET", f"/rl_agent/assets/{name}"))[0] != 204:
                await self._put(name, file)
        if asset.source.is_file():
            self._stored[known] = name
        return name

    async def _put(self, name: str, file: Path) -> None:
        async def send() -> None:
            with file.open("rb") as content:
                timeout = aiohttp.ClientTimeout(total=UPLOAD_S)
                await self._request("PUT", f"/rl_agent/assets/{name}", timeout, data=content)

        await again(send, what=f"the upload of {file} to {self._url}", retries=self._retries)

    async def _json(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Send an idempotent request; return status and JSON object (empty for any other body)."""
        return await again(
            lambda: self._request(method, path, self._timeout, json=body),
            what=f"{method} {self._url}{path}",
            retries=self._retries,
        )

    async def _request(
        self, method: str, path: str, timeout: aiohttp.ClientTimeout, **content: Any
    ) -> tuple[int, dict[str, Any]]:
        headers = {"X-API-KEY": self._key}
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(method, f"{self._url}{path}", headers=headers, **content) as answer,
        ):
            text = await answer.text()
            if answer.status in (429, 502, 503, 504):
                raise BusyError(f"{answer.status}: {text[:300]}", answer.headers.get("Retry-After"))
        try:
            value = json.loads(text)
        except ValueError:
            value = {}
        return answer.status, value if isinstance(value, dict) else {}


class E2BRemote:
    """See `Remote`."""

    def __init__(
        self, remote: Any, *, endpoint: Endpoint, advertise_host: str | None, request_timeout_s: float
    ) -> None:
        """`remote` is the SDK's AsyncSandbox."""
        self._remote = remote
        self._endpoint = endpoint
        self._advertise_host = advertise_host
        self._request_timeout_s = request_timeout_s

    @property
    def id(self) -> str:
        """See `Remote.id`."""
        return str(self._remote.sandbox_id)

    async def run(self, text: str, *, user: str) -> str:
        """See `Remote.run`. Raises the SDK's errors, and plain Exception if the stream breaks."""
        handle = await self._remote.commands.run(
            text, background=True, user=user, timeout=0, request_timeout=self._request_timeout_s
        )
        try:
            return str((await handle.wait()).stdout)
        finally:
            await handle.disconnect()

    async def upload(self, path: str, content: bytes | Path, *, user: str) -> None:
        """See `Remote.upload`."""
        size = len(content) if isinstance(content, bytes) else content.stat().st_size  # noqa: ASYNC240 (one look)
        options = {"user": user, "request_timeout": self._request_timeout_s + size / SLOWEST_BYTES_PER_S}
        if isinstance(content, bytes):
            await self._remote.files.write(path, content, **options)
            return
        with content.open("rb") as file:
            await self._remote.files.write(path, file, **options)

    async def download(self, path: str, *, user: str) -> bytes:
        """See `Remote.download`."""
        return bytes(await self._remote.files.read(path, format="bytes", user=user))

    async def expose(self, port: int) -> str:
        """See `Remote.expose`."""
        if self._advertise_host is not None:
            return f"http://{self._advertise_host}:{port}"
        return await self._endpoint.expose(self.id, port)

    async def remove(self) -> object:
        """See `Remote.remove`."""
        return await self._remote.kill()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

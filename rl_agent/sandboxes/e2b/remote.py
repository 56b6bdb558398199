"""One sandbox of E2B, through its SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.sandboxes.e2b.endpoint import Endpoint

SLOWEST_BYTES_PER_S: Final = 1 << 20


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
        """See `Remote.run`. Raises the SDK's errors, among them plain Exception for a stream without an end."""
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

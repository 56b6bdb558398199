"""What a provider's own service does for a `ScriptedSandbox`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path


class Remote(Protocol):
    """One sandbox of the service. Methods raise the service's own errors, which `failures.failure_of` understands."""

    @property
    def id(self) -> str:
        """Unique name."""

    async def run(self, text: str, *, user: str) -> str:
        """Run a script with bash as `user`; what it prints on stdout. May raise although the script runs, or will."""

    async def upload(self, path: str, content: bytes | Path, *, user: str) -> None:
        """Write a file that `user` owns. May be asked again."""

    async def download(self, path: str, *, user: str) -> bytes:
        """A file's content, read with `user`'s rights."""

    async def expose(self, port: int) -> str:
        """See `Sandbox.expose`."""

    async def remove(self) -> object:
        """End the sandbox; it may be gone already."""

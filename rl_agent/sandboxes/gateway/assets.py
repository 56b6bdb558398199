"""Programs that boxes share: uploaded once, stored by digest, mounted read-only.

This extends E2B's protocol for our own client, so that an agent CLI of 400 MB is not uploaded for every box.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
import shutil
import tarfile
from typing import TYPE_CHECKING, Final

from aiohttp import web

from rl_agent.sandboxes.base import Asset
from rl_agent.sandboxes.gateway.wire import HttpError

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = re.compile(r"[0-9a-f]{64}\.(tar|[0-7]{3})")
"""Digest of the content, then `tar` for a folder, or the mode of a file."""
READ_BYTES: Final = 1 << 20


class AssetStore:
    """Handlers of the folder of assets."""

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, below a prefix that E2B does not use."""
        return [web.get("/rl_agent/assets/{name}", self.has), web.put("/rl_agent/assets/{name}", self.put)]

    def named(self, text: str) -> list[Asset]:
        """Return the assets that a box's metadata names. Raises HttpError if one was not uploaded."""
        try:
            pairs = [(str(item["name"]), str(item["target"])) for item in json.loads(text)]
        except (TypeError, ValueError, KeyError):
            raise HttpError(400, f"invalid assets: {text[:200]}") from None
        found = []
        for name, target in pairs:
            path = self._path(name)
            if not path.exists():
                raise HttpError(409, f"asset {name} was not uploaded")
            found.append(Asset(source=path, target=target))
        return found

    def _path(self, name: str) -> Path:
        if not NAME.fullmatch(name):
            raise HttpError(400, f"invalid asset name {name[:100]!r}")
        return self._folder / name

    async def has(self, request: web.Request) -> web.Response:
        """Answer 204 if an asset is stored."""
        if not self._path(request.match_info["name"]).exists():
            raise HttpError(404, "not uploaded")
        return web.Response(status=204)

    async def put(self, request: web.Request) -> web.Response:
        """Store an asset if its upload is complete."""
        path = self._path(request.match_info["name"])
        self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        new = self._folder / f".new-{secrets.token_hex(8)}"
        try:
            digest = await receive(request, new, self._max_bytes)
            if not path.name.startswith(digest):
                raise HttpError(400, f"the content has digest {digest}, unlike its name")
            await asyncio.to_thread(_place, new, path)
        finally:
            new.unlink(missing_ok=True)
        return web.Response(status=204)


async def receive(request: web.Request, path: Path, max_bytes: int) -> str:
    """Write a request's body to a file; return its SHA-256."""
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as file:
        async for chunk in request.content.iter_chunked(READ_BYTES):
            size += len(chunk)
            if size > max_bytes:
                raise HttpError(413, f"more than {max_bytes} bytes")
            digest.update(chunk)
            file.write(chunk)
    if request.content_length is not None and size != request.content_length:
        raise HttpError(400, f"the upload is incomplete: {size} of {request.content_length} bytes")
    return digest.hexdigest()


def _place(new: Path, path: Path) -> None:
    if path.suffix != ".tar":
        new.chmod(int(path.suffix[1:], 8))
        new.replace(path)
        return
    folder = new.with_name(new.name + ".folder")
    try:
        with tarfile.open(new) as archive:
            archive.extractall(folder, filter="tar")
        if not path.exists():
            folder.rename(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)

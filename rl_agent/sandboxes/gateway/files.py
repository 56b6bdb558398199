"""envd's file service: content streamed over HTTP, folders and attributes by RPC, all as the named user."""

from __future__ import annotations

import asyncio
import functools
import tempfile
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from aiohttp import BodyPartReader, web

from rl_agent.sandboxes.gateway.boxes import refusing
from rl_agent.sandboxes.gateway.wire import Code, HttpError, RpcError, json_body, named_user, user_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import BinaryIO

    from rl_agent.config.gateway import GatewayConfig
    from rl_agent.sandboxes.gateway.boxes import Box, Boxes

READ_BYTES: Final = 1 << 18
CALL_S: Final = 60.0
FIND: Final = r"""find -P "$P" -mindepth $MIN -maxdepth $MAX -printf '%y\t%s\t%m\t%M\t%u\t%g\t%T@\t%l\t%p\0'"""
KINDS: Final = {"d": "FILE_TYPE_DIRECTORY", "f": "FILE_TYPE_FILE", "l": "FILE_TYPE_SYMLINK"}


class FileService:
    """Handlers of the file service."""

    def __init__(self, config: GatewayConfig, boxes: Boxes) -> None:
        self._config = config
        self._boxes = boxes

    def routes(self) -> list[web.RouteDef]:
        """Return the protocol's routes."""
        service = "/filesystem.Filesystem/"
        return [
            web.get("/health", self.health),
            web.get("/files", self.download),
            web.post("/files", self.upload),
            web.post(service + "Stat", self.stat),
            web.post(service + "ListDir", self.list_dir),
            web.post(service + "MakeDir", self.make_dir),
            web.post(service + "Move", self.move),
            web.post(service + "Remove", self.remove),
            web.post(service + "{other}", self.unsupported),
        ]

    async def health(self, request: web.Request) -> web.Response:
        """Answer 204 if a command runs in the box."""
        box = self._boxes.of(request)
        await _run(box, "true", user="root", env={})
        return web.Response(status=204)

    async def download(self, request: web.Request) -> web.StreamResponse:
        """GET /files."""
        box = self._boxes.of(request)
        user = named_user(request.query.get("username"), self._config.default_user)
        path = await self._absolute(box, request.query.get("path", ""), user)
        with await _opened(box, path, user) as file:
            left = file.seek(0, 2)
            file.seek(0)
            response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
            response.content_length = left
            await response.prepare(request)
            while chunk := await asyncio.to_thread(file.read, min(READ_BYTES, left)):
                left -= len(chunk)
                await response.write(chunk)
        return response

    async def upload(self, request: web.Request) -> web.Response:
        """POST /files. A file is written after its upload is complete."""
        box = self._boxes.of(request)
        user = named_user(request.query.get("username"), self._config.default_user)
        with tempfile.TemporaryDirectory(prefix="rl_agent-upload-") as folder:
            received = [item async for item in self._received(request, Path(folder))]
            done = []
            for given, file in received:
                path = await self._absolute(box, given, user)
                with refusing(box, _refusal):
                    await box.sandbox.write_file(path, file, user=user)
                done.append({"name": PurePosixPath(path).name, "path": path, "type": "file"})
        return web.json_response(done)

    async def _received(self, request: web.Request, folder: Path) -> AsyncIterator[tuple[str, Path]]:
        given = request.query.get("path")
        if not request.content_type.startswith("multipart/"):
            target = folder / "body"
            await self._save(request.content.iter_chunked(READ_BYTES), target)
            if request.content_length is not None and target.stat().st_size != request.content_length:
                raise HttpError(400, "the upload is incomplete")
            yield given or "", target
            return
        number = 0
        async for part in await request.multipart():
            if not isinstance(part, BodyPartReader):
                raise HttpError(400, "nested multipart bodies are not supported")
            target = folder / str(number)
            await self._save(_parts(part), target)
            yield given or part.filename or "", target
            number += 1

    async def _save(self, chunks: AsyncIterator[bytes], target: Path) -> None:
        size, limit = 0, self._config.max_upload_mb << 20
        with target.open("wb") as file:
            async for chunk in chunks:
                size += len(chunk)
                if size > limit:
                    raise HttpError(413, f"more than {self._config.max_upload_mb} MB (gateway.max_upload_mb)")
                file.write(chunk)

    async def _absolute(self, box: Box, path: str, user: str) -> str:
        """Return an absolute path. Relative ones start at the user's home."""
        if path.startswith("/"):
            return path
        home = (await _run(box, 'printf %s "$HOME"', user=user, env={})).decode()
        return str(PurePosixPath(home, path.removeprefix("~").lstrip("/")))

    async def _call(self, request: web.Request, *names: str) -> tuple[Box, dict[str, Any], str, list[str]]:
        box = self._boxes.of(request)
        body, user = await json_body(request), user_of(request, self._config.default_user)
        return box, body, user, [await self._absolute(box, str(body.get(name, "")), user) for name in names]

    async def stat(self, request: web.Request) -> web.Response:
        """Return one entry."""
        box, _, user, (path,) = await self._call(request, "path")
        return web.json_response({"entry": (await _entries(box, path, user, 0, 0))[0]})

    async def list_dir(self, request: web.Request) -> web.Response:
        """Return the entries of a folder, `depth` levels deep."""
        box, body, user, (path,) = await self._call(request, "path")
        await _run(
            box,
            'ls -d -- "$P" >/dev/null || exit; [ -d "$P" ] || { echo "not a directory" >&2; exit 20; }',
            user=user,
            env={"P": path},
        )
        depth = int(body.get("depth") or 1)
        return web.json_response({"entries": await _entries(box, path.rstrip("/") + "/", user, 1, depth)})

    async def make_dir(self, request: web.Request) -> web.Response:
        """Create a folder and its parents."""
        box, _, user, (path,) = await self._call(request, "path")
        script = '[ -e "$P" ] && { echo "File exists" >&2; exit 17; }; mkdir -p -- "$P"'
        await _run(box, script, user=user, env={"P": path})
        return web.json_response({"entry": (await _entries(box, path, user, 0, 0))[0]})

    async def move(self, request: web.Request) -> web.Response:
        """Rename a file or folder."""
        box, _, user, (source, target) = await self._call(request, "source", "destination")
        script = 'mkdir -p -- "$(dirname -- "$T")" && mv -T -- "$P" "$T"'
        await _run(box, script, user=user, env={"P": source, "T": target})
        return web.json_response({"entry": (await _entries(box, target, user, 0, 0))[0]})

    async def remove(self, request: web.Request) -> web.Response:
        """Remove a file or folder."""
        box, _, user, (path,) = await self._call(request, "path")
        await _run(box, 'ls -d -- "$P" >/dev/null && rm -rf -- "$P"', user=user, env={"P": path})
        return web.json_response({})

    async def unsupported(self, request: web.Request) -> web.Response:
        """Refuse other methods, such as watching."""
        raise RpcError(Code.UNIMPLEMENTED, f"{request.match_info['other']} is not supported by this gateway")


async def _parts(part: BodyPartReader) -> AsyncIterator[bytes]:
    while chunk := await part.read_chunk(READ_BYTES):
        yield chunk


async def _opened(box: Box, path: str, user: str) -> BinaryIO:
    opener = getattr(box.sandbox, "open_file", None)
    try:
        with refusing(box, _refusal):
            if opener is not None:
                file: BinaryIO = await opener(path, user=user)
                return file
            spooled = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
            spooled.write(await box.sandbox.read_file(path, user=user))
            return spooled
    except FileNotFoundError as error:
        raise HttpError(404, f"path '{path}' does not exist: {error}") from error


def _refusal(text: str) -> HttpError:
    status = 507 if "No space left" in text else 403 if "Permission denied" in text else 400
    return HttpError(status, text)


async def _run(box: Box, script: str, *, user: str, env: dict[str, str]) -> bytes:
    with refusing(box, functools.partial(RpcError, Code.INVALID_ARGUMENT)):
        result = await box.sandbox.exec(script, user=user, env=env, timeout=CALL_S)
    if result.exit_code == 0:
        return result.stdout
    said = result.stderr.decode(errors="replace").strip()[-500:]
    for words, code in (
        ("No such file", Code.NOT_FOUND),
        ("Permission denied", Code.PERMISSION_DENIED),
        ("File exists", Code.ALREADY_EXISTS),
    ):
        if words in said:
            raise RpcError(code, said)
    raise RpcError(Code.INVALID_ARGUMENT, said or f"exit code {result.exit_code}")


async def _entries(box: Box, path: str, user: str, least: int, most: int) -> list[dict[str, Any]]:
    env = {"P": path, "MIN": str(least), "MAX": str(most)}
    listing = (await _run(box, FIND, user=user, env=env)).decode(errors="surrogateescape")
    return [_entry(line) for line in listing.split("\0") if line]


def _entry(line: str) -> dict[str, Any]:
    kind, size, mode, shown, owner, group, changed, link, path = line.split("\t", 8)
    path = path.replace("//", "/")
    return {
        "name": PurePosixPath(path).name,
        "path": path,
        "type": KINDS.get(kind, "FILE_TYPE_UNSPECIFIED"),
        "size": size,
        "mode": int(mode, 8),
        "permissions": shown,
        "owner": owner,
        "group": group,
        "modifiedTime": datetime.fromtimestamp(float(changed), UTC).isoformat().replace("+00:00", "Z"),
        **({"symlinkTarget": link} if link else {}),
    }

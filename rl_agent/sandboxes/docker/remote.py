"""One container, as a place where scripts run."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from rl_agent.sandboxes.docker.client import DockerError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rl_agent.sandboxes.docker.client import DockerClient
    from rl_agent.sandboxes.docker.ports import Ports

CHUNK_BYTES: Final = 1 << 20
SLOWEST_BYTES_PER_S: Final = 1 << 20
REFUSED: Final = 400
KILLED: Final = 0
EXITED: Final = 128
"""More is the number of a signal: somebody killed the script's shell."""


class DockerRemote:
    """See `Remote`."""

    def __init__(self, name: str, *, client: DockerClient, ports: Ports, timeout_s: float) -> None:
        self._name = name
        self._client = client
        self._ports = ports
        self._timeout_s = timeout_s
        self._ids: dict[str, tuple[int, int]] = {}

    @property
    def id(self) -> str:
        """See `Remote.id`."""
        return self._name

    async def run(self, text: str, *, user: str) -> str:
        """See `Remote.run`."""
        return (await self._run(text, user=user)).decode(errors="replace")

    async def _run(self, text: str, *, user: str) -> bytes:
        printed = await self._client.run(self._name, ["/bin/bash", "-c", text], user=user)
        if printed.exit_code != 0:
            said = printed.stderr.decode(errors="replace").strip()
            status = KILLED if printed.exit_code > EXITED else REFUSED
            raise DockerError(status, f"a script ended with {printed.exit_code}: {said}")
        return printed.stdout

    async def upload(self, path: str, content: bytes | Path, *, user: str) -> None:
        """See `Remote.upload`."""
        owner = await self._owner(user)
        size = _size(content)
        folder, name = str(PurePosixPath(path).parent), PurePosixPath(path).name
        timeout_s = self._timeout_s + size / SLOWEST_BYTES_PER_S
        archive = _archive(name, content, size, owner)
        await self._client.put_archive(self._name, folder, archive, timeout_s=timeout_s)

    async def _owner(self, user: str) -> tuple[int, int]:
        if user not in self._ids:
            uid, gid = (await self._run("id -u; id -g", user=user)).split()
            self._ids[user] = int(uid), int(gid)
        return self._ids[user]

    async def download(self, path: str, *, user: str) -> bytes:
        """See `Remote.download`. By a command of the user's: the API's own archives are read as root."""
        printed = await self._client.run(self._name, ["/bin/cat", "--", path], user=user)
        if printed.exit_code != 0:
            raise DockerError(REFUSED, printed.stderr.decode(errors="replace").strip())
        return printed.stdout

    async def expose(self, port: int) -> str:
        """See `Remote.expose`."""
        return await self._ports.expose(port)

    async def remove(self) -> object:
        """See `Remote.remove`."""
        return await remove(self._client, self._name)


def _size(content: bytes | Path) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


async def remove(client: DockerClient, name: str) -> bool:
    """Kill and remove a container; whether it was there."""
    try:
        await client.ask("DELETE", f"/containers/{name}", query={"force": "true", "v": "true"})
    except DockerError as error:
        if error.status in (404, 409):  # 409: its removal is under way already
            return False
        raise
    return True


async def _archive(name: str, content: bytes | Path, size: int, owner: tuple[int, int]) -> AsyncIterator[bytes]:
    """A tar of one file, never whole in memory."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, (info.uid, info.gid) = size, 0o600, owner
    yield info.tobuf()
    with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
        left = size
        while left and (chunk := file.read(min(CHUNK_BYTES, left))):
            left -= len(chunk)
            yield chunk
    if left:
        raise OSError(f"{content!r} became shorter while it was read"[:300])
    yield bytes(-size % tarfile.BLOCKSIZE + 2 * tarfile.BLOCKSIZE)

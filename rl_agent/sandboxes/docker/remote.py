"""One container, as a place where scripts run."""

from __future__ import annotations

import asyncio
import io
import tarfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from aiodocker import DockerError

from rl_agent.sandboxes.scripted.failures import Failure, failure_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from aiodocker.containers import DockerContainer
    from aiodocker.execs import Exec

    from rl_agent.sandboxes.docker.ports import Ports

CHUNK_BYTES: Final = 1 << 20
SLOWEST_BYTES_PER_S: Final = 1 << 20
REFUSED: Final = 400
KILLED: Final = 0
EXITED: Final = 128
"""More is the number of a signal: somebody killed the script's shell."""
STDOUT: Final = 1
REMOVE_S: Final = 60.0
STDERR_KEPT: Final = 4000
ENDING_S: Final = 3.0
"""How long a command whose output is at its end may still count as running."""


class DockerRemote:
    """See `Remote`."""

    def __init__(self, container: DockerContainer, *, ports: Ports, timeout_s: float) -> None:
        self._container = container
        self._ports = ports
        self._timeout_s = timeout_s
        self._ids: dict[str, tuple[int, int]] = {}

    @property
    def id(self) -> str:
        """See `Remote.id`."""
        return self._container.id

    async def run(self, text: str, *, user: str) -> str:
        """See `Remote.run`."""
        code, out, err = await self._command(["/bin/bash", "-c", text], user=user)
        if code != 0:
            said = err.decode(errors="replace").strip()
            raise DockerError(KILLED if code > EXITED else REFUSED, f"a script ended with {code}: {said}")
        return out.decode(errors="replace")

    async def _command(self, argv: Sequence[str], *, user: str) -> tuple[int, bytes, bytes]:
        """A command's exit code, stdout and end of stderr. Raises DockerError when its output breaks off."""
        command = await self._container.exec(argv, user=user)
        out, err = bytearray(), bytearray()
        async with command.start() as stream:
            while (message := await stream.read_out()) is not None:
                (out if message.stream == STDOUT else err).extend(message.data)
                del err[:-STDERR_KEPT]
        return await _exit_code(command), bytes(out), bytes(err)

    async def upload(self, path: str, content: bytes | Path, *, user: str) -> None:
        """See `Remote.upload`."""
        owner = await self._owner(user)
        size = _size(content)
        folder, name = str(PurePosixPath(path).parent), PurePosixPath(path).name
        timeout_s = self._timeout_s + size / SLOWEST_BYTES_PER_S
        async with asyncio.timeout(timeout_s):
            await self._container.put_archive(folder, _archive(name, content, size, owner))  # type: ignore[no-untyped-call]

    async def _owner(self, user: str) -> tuple[int, int]:
        if user not in self._ids:
            uid, gid = (await self.run("id -u; id -g", user=user)).split()
            self._ids[user] = int(uid), int(gid)
        return self._ids[user]

    async def download(self, path: str, *, user: str) -> bytes:
        """See `Remote.download`. By a command of the user's: the API's own archives are read as root."""
        code, out, err = await self._command(["/bin/cat", "--", path], user=user)
        if code != 0:
            raise DockerError(REFUSED, err.decode(errors="replace").strip())
        return out

    async def expose(self, port: int) -> str:
        """See `Remote.expose`."""
        return await self._ports.expose(port)

    async def remove(self) -> object:
        """See `Remote.remove`."""
        return await remove(self._container)


def _size(content: bytes | Path) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


async def remove(container: DockerContainer) -> bool:
    """Kill and remove a container; whether it was there."""
    try:
        async with asyncio.timeout(REMOVE_S):
            await container.delete(force=True, v=True)
    except DockerError as error:
        if error.status in (404, 409) or failure_of(error) is Failure.LOST:  # 409: its removal is under way already
            return False
        raise
    return True


async def _exit_code(command: Exec) -> int:
    for _ in range(int(ENDING_S / 0.05)):
        try:
            state = await command.inspect()
        except DockerError as error:
            if error.status == 404:
                break
            raise
        if not state["Running"]:
            return int(state["ExitCode"])
        await asyncio.sleep(0.05)
    raise DockerError(0, "the output broke off")


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

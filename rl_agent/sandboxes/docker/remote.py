"""One container, in which scripts run."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import socket
import tarfile
from contextlib import AsyncExitStack
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from aiodocker import DockerError

from rl_agent.errors import SandboxError
from rl_agent.sandboxes.local.forward import Forward
from rl_agent.sandboxes.local.helper import Helper, HelperError
from rl_agent.sandboxes.scripted.failures import Failure, failure_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from types import TracebackType

    from aiodocker.containers import DockerContainer
    from aiodocker.execs import Exec


CHUNK_BYTES: Final = 1 << 20
SLOWEST_BYTES_PER_S: Final = 1 << 20
REFUSED: Final = 400
KILLED: Final = 0
EXITED: Final = 128
"""A higher exit code is 128 + signal number: something killed the script's shell."""
STDOUT: Final = 1
REMOVE_S: Final = 60.0
STDERR_KEPT: Final = 4000
ENDING_S: Final = 3.0
"""Wait for a command to exit after the end of its output."""


class DockerRemote:
    """See `Remote`. Async context: the forwarded ports close at its end.

    A container without a network has only its own loopback. If the service is on this machine and this process is root, it
    listens there and forwards connections to the exposed port. The container reaches nothing else.
    """

    def __init__(self, container: DockerContainer, *, address: str | None, local: bool, timeout_s: float) -> None:
        """`address`: this machine's name in the container; None: ports are forwarded. `local`: the service is on this machine."""
        self._container = container
        self._address = address
        self._local = local
        self._timeout_s = timeout_s
        self._ids: dict[str, tuple[int, int]] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> DockerRemote:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

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
        """Return a command's exit code, stdout and end of stderr. Raises DockerError if the output stream breaks."""
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
        """See `Remote.download`. Runs a command as the user, since the API reads archives as root."""
        code, out, err = await self._command(["/bin/cat", "--", path], user=user)
        if code != 0:
            raise DockerError(REFUSED, err.decode(errors="replace").strip())
        return out

    async def expose(self, port: int) -> str:
        """See `Remote.expose`."""
        if self._address is not None:
            return f"http://{self._address}:{port}"
        forward = Forward(port)
        await forward.start(await self._listener(port))
        self._stack.push_async_callback(forward.close)
        return f"http://127.0.0.1:{port}"

    async def _listener(self, port: int) -> socket.socket:
        """Return a listening socket in the container's network namespace."""
        found = await self._container.show()
        pid = int(found["State"]["Pid"])
        if not self._local or os.geteuid() != 0 or not _is_ours(pid, str(found["Id"])):
            raise SandboxError(
                f"container {self._container.id}: port forwarding needs root and a Docker on this machine. Set adapter.advertise_host "
                "to a name of this machine that containers reach, sandbox.container_network to a Docker network, "
                "adapter.bind_host=0.0.0.0 and adapter.port."
            )
        pidfd = os.pidfd_open(pid)
        helper = Helper()
        try:
            call = helper.call({"op": "listen", "port": port}, [pidfd])
            try:
                listener = socket.socket(fileno=(await call.answer()).fds[0])
            finally:
                call.close()
        except (HelperError, IndexError) as error:
            raise SandboxError(f"container {self._container.id}: cannot listen on port {port}: {error}") from error
        finally:
            os.close(pidfd)
            helper.stop()
        listener.setblocking(False)
        return listener

    async def remove(self) -> object:
        """See `Remote.remove`."""
        return await remove(self._container)


def _is_ours(pid: int, container: str) -> bool:
    """Return whether process `pid` belongs to the container: Docker may run in a virtual machine."""
    with contextlib.suppress(OSError):
        return pid > 0 and container in Path(f"/proc/{pid}/cgroup").read_text()
    return False


def _size(content: bytes | Path) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


async def remove(container: DockerContainer) -> bool:
    """Kill and remove a container; return whether it existed."""
    try:
        async with asyncio.timeout(REMOVE_S):
            await container.delete(force=True, v=True)
    except DockerError as error:
        if error.status in (404, 409) or failure_of(error) is Failure.LOST:  # 409: already being removed
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
    raise DockerError(0, "the output stream broke")


async def _archive(name: str, content: bytes | Path, size: int, owner: tuple[int, int]) -> AsyncIterator[bytes]:
    """Yield a tar archive of one file in chunks."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, (info.uid, info.gid) = size, 0o600, owner
    yield info.tobuf()
    with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
        left = size
        while left and (chunk := file.read(min(CHUNK_BYTES, left))):
            left -= len(chunk)
            yield chunk
    if left:
        raise OSError(f"{content!r} shrank while it was read"[:300])
    yield bytes(-size % tarfile.BLOCKSIZE + 2 * tarfile.BLOCKSIZE)

"""How a container reaches ports of this machine."""

from __future__ import annotations

import contextlib
import os
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from rl_agent.errors import SandboxError
from rl_agent.sandboxes.local.forward import Forward
from rl_agent.sandboxes.local.helper import Helper, HelperError

if TYPE_CHECKING:
    from types import TracebackType

    from aiodocker.containers import DockerContainer


class Ports:
    """Async context of one container: its forwards end with it.

    A container without a network has only its own loopback. Where the service is this machine's and we are root, we listen
    there ourselves and carry what arrives, so that nothing else of this machine is in reach.
    """

    def __init__(self, container: DockerContainer, *, address: str | None, local: bool) -> None:
        """`address`: the name under which the container reaches this machine, None if it must be carried there."""
        self._container = container
        self._address = address
        self._local = local
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Ports:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def expose(self, port: int) -> str:
        """See `Sandbox.expose`."""
        if self._address is not None:
            return f"http://{self._address}:{port}"
        forward = Forward(port)
        await forward.start(await self._listener(port))
        self._stack.push_async_callback(forward.close)
        return f"http://127.0.0.1:{port}"

    async def _listener(self, port: int) -> socket.socket:
        """Listens in the container's network namespace."""
        found = await self._container.show()
        pid = int(found["State"]["Pid"])
        if not self._local or os.geteuid() != 0 or not _is_ours(pid, str(found["Id"])):
            raise SandboxError(
                f"container {self._container.id} cannot be given a port of this machine: that needs root and a Docker on this machine. "
                "Remedy: set adapter.advertise_host to a name of this machine that containers reach, sandbox.container_network to a "
                "network of Docker's, adapter.bind_host=0.0.0.0 and adapter.port."
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
            raise SandboxError(f"cannot listen on port {port} in container {self._container.id}: {error}") from error
        finally:
            os.close(pidfd)
            helper.stop()
        listener.setblocking(False)
        return listener


def _is_ours(pid: int, container: str) -> bool:
    """Whether process `pid` of this machine is the container's: a Docker behind a socket may be in a virtual machine."""
    with contextlib.suppress(OSError):
        return pid > 0 and container in Path(f"/proc/{pid}/cgroup").read_text()
    return False

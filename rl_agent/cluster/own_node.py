"""Monitor of Ray's own processes on the machine of the run. Without them, no call to Ray returns.

A raylet that dies takes the workers of its machine with it. Ray then blocks calls for a minute or for good, or exits
the driver without a message. So the run watches these processes itself, and ends as soon as one of them exits.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import psutil
import ray

from rl_agent.errors import InfraError
from rl_agent.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping


class OwnNode:
    """State of Ray on this machine."""

    def __init__(self) -> None:
        self.lost = False
        self._gone: asyncio.Queue[str] = asyncio.Queue()

    async def watch(self, servers: Mapping[str, int]) -> None:
        """Wait until one of `servers` (name -> process id) exits, and raise InfraError."""
        loop, ends = asyncio.get_running_loop(), {}
        try:
            for name, pid in servers.items():
                try:
                    ends[name] = os.pidfd_open(pid)
                except ProcessLookupError:
                    self._end(name)
                else:
                    loop.add_reader(ends[name], self._end, name)
            name = await self._gone.get()
        finally:
            for end in ends.values():
                loop.remove_reader(end)
                os.close(end)
        raise InfraError(
            f"Ray's {name} on this machine has ended (killed, or out of memory), so the run can no longer reach its processes. "
            "Continue from the last checkpoint with resume=<run folder>. Ray's own logs are in /tmp/ray."
        )

    def _end(self, name: str) -> None:
        self.lost = True
        self._gone.put_nowait(name)


@asynccontextmanager
async def own_node() -> AsyncIterator[OwnNode]:
    """End the body at once if Ray loses its processes on this machine. Use it after `ray.init`."""
    node, servers = OwnNode(), await asyncio.to_thread(_servers)
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(node.watch(servers))
        yield node
        watching.cancel()


def _servers() -> dict[str, int]:
    """Return the raylet, and the global control store if it is on this machine, as far as this user can see them."""
    here = ray.get_runtime_context()
    node = next(node for node in ray.nodes() if node["NodeID"] == here.get_node_id())
    ports = {"raylet": node["NodeManagerPort"]}
    head, _, port = here.gcs_address.rpartition(":")
    if head in {node["NodeManagerAddress"], LOOPBACK}:
        ports["global control store"] = int(port)
    listeners = {
        connection.laddr.port: connection.pid
        for connection in psutil.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN and connection.pid
    }
    return {name: listeners[port] for name, port in ports.items() if port in listeners}

"""Ray's processes on the run's own machine: without them nothing that the run asks of Ray is ever answered.

A raylet that dies takes the workers of its machine along, and Ray then lets calls and values wait for a minute or for ever,
or ends the driver without a word. So the run looks itself, and ends at the moment when one of them does.
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
    """Whether Ray still works here."""

    def __init__(self) -> None:
        self.lost = False
        self._gone: asyncio.Queue[str] = asyncio.Queue()

    async def watch(self, servers: Mapping[str, int]) -> None:
        """Wait for the end of one of `servers` (what it is -> process id). Raises InfraError then."""
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
            f"Ray's {name} on this machine has ended (killed, or out of memory): the run cannot reach its processes any more. "
            "Remedy: continue with resume=<run folder>, from the last checkpoint. Ray's own logs are in /tmp/ray."
        )

    def _end(self, name: str) -> None:
        self.lost = True
        self._gone.put_nowait(name)


@asynccontextmanager
async def own_node() -> AsyncIterator[OwnNode]:
    """Inside, the loss of Ray's processes on this machine ends the body at once. For use within `ray.init`."""
    node, servers = OwnNode(), await asyncio.to_thread(_servers)
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(node.watch(servers))
        yield node
        watching.cancel()


def _servers() -> dict[str, int]:
    """The raylet, and the head's global control store where it is on this machine, as far as this user may see them."""
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

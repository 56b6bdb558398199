"""One sandbox, one box or one failed boot takes nothing from the others of its process."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import resource
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from rl_agent.config.gateway import GatewayConfig
from rl_agent.errors import SandboxError
from rl_agent.sandboxes.base import SandboxLostError
from rl_agent.sandboxes.gateway.server import Gateway
from rl_agent.sandboxes.gateway.wire import frame
from rl_agent.sandboxes.local.forward import MOST
from rl_agent.sandboxes.state import LiveRecords
from tests.local import GATEWAY_KEY, local_provider, needs_root

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


class Dying:
    """A sandbox that is lost in its first command; its provider cannot stream."""

    id = "dying"

    async def exec(self, cmd: str, **_: Any) -> Any:
        raise SandboxLostError("its container died")


class Provider:
    """Boots `Dying`, or fails in a way that nobody thought of."""

    @asynccontextmanager
    async def boot(self, image: str, **_: Any) -> AsyncIterator[Any]:
        if image == "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        yield Dying()

    async def sweep(self) -> int:
        return 0


async def test_what_breaks_one_box_leaves_the_gateway_and_the_others_alone(tmp_path: Path) -> None:
    config = GatewayConfig(port=0, assets_dir=str(tmp_path))
    async with (
        Gateway(Provider(), config, key=GATEWAY_KEY) as opened,  # type: ignore[arg-type]
        aiohttp.ClientSession(headers={"X-API-KEY": GATEWAY_KEY}) as http,
    ):

        async def create(image: str, **metadata: str) -> tuple[int, Any]:
            body = {"templateID": image, "metadata": metadata}
            async with http.post(f"{opened.url}/v2/sandboxes", json=body) as answer:
                return answer.status, await answer.json()

        (_, one), (_, other) = await create("x"), await create("x")
        headers = {"E2b-Sandbox-Id": one["sandboxID"], "X-Access-Token": one["envdAccessToken"]}
        start = frame({"process": {"cmd": "/bin/true", "args": []}})
        async with http.post(f"{opened.url}/process.Process/Start", data=start, headers=headers) as answer:
            assert b"its container died" in await answer.read()
        status, said = await create("full")
        assert (status, "No space left" in str(said)) == (500, True)
        for limits in ('{"memory_mb":"8g"}', '{"memory_mb":8.5}', "[]", '{"x":1}', "[" * 100_000):
            status, said = await create("x", rl_agent_limits=limits)
            assert (status, "rl_agent_limits" in str(said)) == (400, True)
        assert other["sandboxID"] in {box.id for box in opened.boxes.all()}


def test_the_record_of_a_sandbox_that_was_not_removed_stays_until_it_is(tmp_path: Path) -> None:
    records = LiveRecords(tmp_path)
    removed, left = records.of_boot(), records.of_boot()
    records.forget(removed)
    assert [path.name for path in tmp_path.iterdir()] == [left]
    assert records.orphans() == [], "its owner lives"
    (tmp_path / left).rename(tmp_path / "999999999-1-gone")
    assert LiveRecords(tmp_path).orphans() == ["999999999-1-gone"]


CONNECT = """python3 -c '
import socket, time
ours = [socket.create_connection(("127.0.0.1", {port})) for _ in range({count})]
open("/tmp/made", "w").close()
time.sleep(60)'"""


@needs_root
async def test_a_sandbox_that_opens_connections_without_end_gets_some(tmp_path: Path) -> None:
    most, at_a_time = 0, 0
    full = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal most, at_a_time
        at_a_time += 1
        most = max(most, at_a_time)
        if at_a_time == MOST:
            full.set()
        await reader.read()
        at_a_time -= 1
        writer.close()

    async with (
        await asyncio.start_server(serve, "127.0.0.1", 0) as server,
        local_provider(tmp_path / "state").boot("host", lifetime_s=100) as sandbox,
    ):
        port = server.sockets[0].getsockname()[1]
        await sandbox.expose(port)
        run = asyncio.create_task(sandbox.exec(CONNECT.format(port=port, count=3 * MOST), timeout=90))
        async with asyncio.timeout(60):
            await full.wait()
            await sandbox.exec("until [ -e /tmp/made ]; do sleep 0.05; done", timeout=50)
        assert most == MOST
        run.cancel()
        await asyncio.wait([run])


@contextmanager
def open_files(more: int) -> Iterator[None]:
    """This process may open so many more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(own_files()) + 1 + more, hard))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for _ in range(more):
            os.close(taken.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


def own_files() -> list[int]:
    return [int(path.name) for path in Path("/proc/self/fd").iterdir()]


@needs_root
async def test_no_open_file_left_is_a_sandbox_error_and_leaks_none(tmp_path: Path) -> None:
    provider = local_provider(tmp_path / "state")
    async with provider.boot("host", lifetime_s=100) as sandbox:
        await sandbox.exec("true", timeout=20)
        gc.collect()  # what earlier tests have forgotten is not counted
        before = len(own_files())
        for more in range(4):
            with open_files(more):
                with pytest.raises(SandboxError):
                    await sandbox.exec("true", timeout=20)
                with pytest.raises(SandboxError):
                    async with provider.boot("host", lifetime_s=100):
                        pass
        gc.collect()
        assert len(own_files()) <= before
        assert (await sandbox.exec("echo here", timeout=20)).stdout == b"here\n"

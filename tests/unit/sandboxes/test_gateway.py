"""The gateway as E2B's own client sees it, and as a stranger does; and turns to boot."""

from __future__ import annotations

import asyncio
import io
import time
from typing import TYPE_CHECKING, Any

import aiohttp
import e2b
import pytest
from e2b import AsyncSandbox, CommandExitException

from rl_agent.errors import ConfigError
from rl_agent.sandboxes.base import Asset
from rl_agent.sandboxes.state import BootGate
from tests.local import GATEWAY_KEY, e2b_provider, gateway, needs_root

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs_root


def connection(url: str) -> dict[str, Any]:
    return {"api_url": url, "sandbox_url": url, "api_key": GATEWAY_KEY}


async def test_processes_are_listed_joined_fed_and_killed_with_their_tree(tmp_path: Path) -> None:
    async with gateway(tmp_path) as opened:
        sandbox = await AsyncSandbox.create("base", timeout=120, **connection(opened.url))
        fed = await sandbox.commands.run("cat; echo end", background=True, stdin=True, timeout=0)
        assert [process.pid for process in await sandbox.commands.list()] == [fed.pid]
        joined = await sandbox.commands.connect(fed.pid)
        await sandbox.commands.send_stdin(fed.pid, "hello\n")
        await sandbox.commands.close_stdin(fed.pid)
        assert (await fed.wait()).stdout == (await joined.wait()).stdout == "hello\nend\n"
        tree = await sandbox.commands.run("setsid -f sleep 987; sleep 986", background=True, timeout=0)
        assert await tree.kill()
        with pytest.raises(CommandExitException):
            await tree.wait()
        left = await sandbox.commands.run("cat /proc/[0-9]*/comm | grep -c sleep || true", user="root")
        assert left.stdout == "0\n"
        assert await sandbox.kill()
        assert not await sandbox.kill()
        with pytest.raises(e2b.SandboxNotRunningException):
            await sandbox.commands.run("true")


async def test_files_are_the_users_and_bounded(tmp_path: Path) -> None:
    async with gateway(tmp_path, max_upload_mb=1, max_body_mb=1) as opened:
        sandbox = await AsyncSandbox.create("base", timeout=120, **connection(opened.url))
        await sandbox.files.write("/tmp/a/b", io.BytesIO(b"x" * 1000))
        assert await sandbox.files.read("/tmp/a/b", format="bytes") == b"x" * 1000
        assert [entry.name for entry in await sandbox.files.list("/tmp/a")] == ["b"]
        for refused in (
            lambda: sandbox.files.write("/etc/mine", "x"),
            lambda: sandbox.files.read("/root/x"),
            lambda: sandbox.files.write("/tmp/big", b"x" * (2 << 20)),
            lambda: sandbox.commands.run("true", envs={"BIG": "x" * (2 << 20)}),
        ):
            with pytest.raises(Exception, match=r"(?i)permission|more than|large"):
                await refused()
        with pytest.raises(e2b.FileNotFoundException):
            await sandbox.files.read("/tmp/missing")


async def test_without_the_key_or_a_boxs_own_token_nothing_is_served(tmp_path: Path) -> None:
    async with gateway(tmp_path) as opened, aiohttp.ClientSession() as session:
        box = await AsyncSandbox.create("base", timeout=120, **connection(opened.url))
        for path in ("/sandboxes", "/v2/sandboxes", f"/sandboxes/{box.sandbox_id}", "/rl_agent"):
            for headers in ({}, {"X-API-KEY": "wrong"}):
                async with session.get(opened.url + path, headers=headers) as answer:
                    assert answer.status == 401 or path == "/rl_agent"
        for token in ("", "wrong"):
            headers = {"E2b-Sandbox-Id": box.sandbox_id, "X-Access-Token": token}
            async with session.get(opened.url + "/files?path=/etc/passwd", headers=headers) as answer:
                assert answer.status == 401


async def test_assets_that_the_image_has_are_looked_for_and_not_uploaded(tmp_path: Path) -> None:
    async with gateway(tmp_path) as opened:
        provider = e2b_provider(opened.url, tmp_path, assets_in_image=True)
        there = Asset(source=tmp_path / "not-even-here", target="/usr/bin/env")
        async with provider.boot("host", assets=[there], lifetime_s=60) as sandbox:
            assert (await sandbox.exec("echo here", timeout=20)).stdout == b"here\n"
        missing = Asset(source=tmp_path, target="/opt/rl_agent/bin/no-cli")
        with pytest.raises(ConfigError, match=r"no-cli[\s\S]*Build the image"):
            async with provider.boot("host", assets=[missing], lifetime_s=60):
                pass
        assert opened.boxes.all() == []
        assert not (tmp_path / "assets").exists()


async def test_the_same_key_gives_the_same_box_also_to_requests_at_the_same_time(tmp_path: Path) -> None:
    async with gateway(tmp_path) as opened, aiohttp.ClientSession() as session:

        async def create() -> str:
            headers = {"X-API-KEY": GATEWAY_KEY, "Idempotency-Key": "one-and-the-same"}
            body = {"templateID": "base", "timeout": 100}
            async with session.post(f"{opened.url}/v2/sandboxes", headers=headers, json=body) as answer:
                assert answer.status == 201
                return str((await answer.json())["sandboxID"])

        first = await asyncio.gather(*[create() for _ in range(8)])
        assert {*first, await create()} == {opened.boxes.all()[0].id}
        assert len(opened.boxes.all()) == 1


async def test_a_lifetime_ends_a_box_and_can_be_prolonged(tmp_path: Path) -> None:
    async with gateway(tmp_path) as opened:
        short, longer = [await AsyncSandbox.create("base", timeout=2, **connection(opened.url)) for _ in range(2)]
        await longer.set_timeout(100)
        await asyncio.sleep(3)
        assert [box.id for box in opened.boxes.all()] == [longer.sandbox_id]
        assert not await short.is_running()


@pytest.mark.parametrize("entry", ["10.0.0.1:80", "127.0.0.1", "127.0.0.1:http", ""])
async def test_only_ports_of_this_machine_can_be_exposed(entry: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gateway\.expose"):
        async with gateway(tmp_path, expose=[entry]):
            pass


async def test_turns_to_boot_are_bounded_in_number_and_in_rate_across_gates(tmp_path: Path) -> None:
    gates = [BootGate(tmp_path, concurrency=2, per_s=None) for _ in range(3)]
    now = most = 0

    async def boot(gate: BootGate) -> None:
        nonlocal now, most
        async with gate.turn():
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.02)
            now -= 1

    await asyncio.gather(*[boot(gate) for gate in gates * 3])
    assert most == 2
    started = time.monotonic()
    paced = BootGate(tmp_path / "paced", concurrency=16, per_s=10.0)
    await asyncio.gather(*[boot(paced) for _ in range(4)])
    assert time.monotonic() - started >= 0.28

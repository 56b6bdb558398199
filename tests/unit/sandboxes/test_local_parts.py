"""The parts of the local sandbox that need no sandbox."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_agent.errors import ConfigError
from rl_agent.sandboxes import state
from rl_agent.sandboxes.base import Limits
from rl_agent.sandboxes.local import images
from rl_agent.sandboxes.local.boot import mount_option
from rl_agent.sandboxes.local.forward import Forward
from rl_agent.sandboxes.local.limits import Controllers, weigh
from rl_agent.sandboxes.local.process import Output

if TYPE_CHECKING:
    from pathlib import Path


@given(chunks=st.lists(st.binary(min_size=1, max_size=300), max_size=40), limit=st.integers(2, 400))
def test_an_output_within_its_limit_is_whole_and_a_longer_one_keeps_head_and_tail(
    chunks: list[bytes], limit: int
) -> None:
    everything = b"".join(chunks)

    async def collect() -> bytes:
        read, write = os.pipe()
        output = Output(read, limit)
        for chunk in chunks:
            os.write(write, chunk)
            await asyncio.sleep(0)
        os.close(write)
        return output.take()

    taken = asyncio.run(collect())
    half = limit // 2
    if len(everything) <= 2 * half:
        assert taken == everything
    else:
        dropped = len(everything) - 2 * half
        assert taken == everything[:half] + f"\n[... {dropped} bytes dropped ...]\n".encode() + everything[-half:]


async def test_an_output_that_others_hold_open_is_read_on_and_thrown_away() -> None:
    read, write = os.pipe()
    output = Output(read, 100)
    os.write(write, b"mine")
    assert output.take() == b"mine"
    assert output.open
    os.write(write, b"later")
    await asyncio.sleep(0.05)
    assert b"later" not in output.take()
    os.close(write)
    await asyncio.sleep(0.05)
    assert not output.open


async def test_a_forward_carries_both_ways_and_closes_what_is_open() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line.upper())
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        listener = socket.create_server(("127.0.0.1", 0))
        forward = Forward(server.sockets[0].getsockname()[1])
        await forward.start(listener)
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"hello\n")
        assert await reader.readline() == b"HELLO\n"
        await forward.close()
        assert await reader.read() == b""
        writer.close()


def test_the_agent_gets_a_free_uid_and_keeps_one_that_it_has(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "etc").mkdir()
    passwd = tmp_path / "etc" / "passwd"
    passwd.write_text("root:x:0:0::/root:/bin/sh\nubuntu:x:1000:1000::/home/ubuntu:/bin/sh")
    (tmp_path / "etc" / "group").write_text("root:x:0:\nstaff:x:1001:\n")
    entries = {entry["path"]: entry for entry in images.resolve(f"dir:{tmp_path}").entries}
    assert entries["/etc/passwd"]["text"].splitlines()[-1] == "agent:x:1002:1002::/home/agent:/bin/bash"
    assert entries["/home/agent"]["uid"] == 1002
    passwd.write_text("root:x:0:0::/root:/bin/sh\nagent:x:77:78::/srv/agent:/bin/sh\n")
    entries = {entry["path"]: entry for entry in images.resolve(f"dir:{tmp_path}").entries}
    assert "/etc/passwd" not in entries
    assert (entries["/srv/agent"]["uid"], entries["/srv/agent"]["gid"]) == (77, 78)


@pytest.mark.parametrize("image", ["ubuntu:24.04", "dir:relative", "", "hosts"])
def test_an_unknown_image_is_a_config_error_that_names_it(image: str) -> None:
    with pytest.raises(ConfigError, match="Use `host`"):
        images.resolve(image)


def test_entries_come_parents_first_and_keep_the_images_attributes() -> None:
    entries = images.resolve("host").entries
    seen: set[str] = {"/"}
    for entry in entries:
        assert entry["path"].rpartition("/")[0] or "/" in seen
        seen.add(entry["path"])
    etc = next(entry for entry in entries if entry["path"] == "/etc")
    assert (etc["kind"], etc["mode"]) == ("dir", 0o755)


def test_overlay_options_survive_odd_paths() -> None:
    assert mount_option("/a,b:c\\d") == "/a\\,b\\:c\\\\d"


def test_a_dead_owner_is_told_from_a_living_one_and_from_a_stranger() -> None:
    own = f"{state.owner_tag()}-abc"
    pid, started, name = own.split("-")
    assert not state.is_dead(own)
    assert state.is_dead(f"{pid}-{int(started) + 1}-{name}"), "the number was reused"
    assert state.is_dead(f"4194304-1-{name}")
    assert not state.is_dead("something-else")


def test_without_controllers_memory_is_bounded_by_process() -> None:
    groups = Controllers(parents={}, unified=False).for_sandbox("x", Limits(memory_mb=10, processes=5), nice=0)
    assert groups.folders == ()
    assert list(groups.rlimits.values()) == [10 << 20]


@pytest.mark.parametrize("unified", [True, False])
def test_control_groups_carry_the_limits_and_can_be_removed(tmp_path: Path, unified: bool) -> None:
    parents = (
        dict.fromkeys(("cpu", "memory", "pids"), tmp_path)
        if unified
        else {n: tmp_path / n for n in ("cpu", "memory", "pids")}
    )
    for parent in parents.values():
        parent.mkdir(exist_ok=True)
    controllers = Controllers(parents=parents, unified=unified)
    groups = controllers.for_sandbox("1-2-x", Limits(memory_mb=10, processes=5, cpus=1.5), nice=10)
    written = {file.name: file.read_text() for folder in groups.folders for file in folder.iterdir()}
    assert written["pids.max"] == "5"
    assert (written.get("memory.max") or written.get("memory.limit_in_bytes")) == str(10 << 20)
    assert (written.get("cpu.max") or written.get("cpu.cfs_quota_us")) in ("150000 100000", "150000")
    assert sorted(controllers.leftovers()) == sorted(groups.folders)


def test_sandboxes_together_weigh_like_as_many_nice_processes(tmp_path: Path) -> None:
    shared = Controllers(parents={"cpu": tmp_path}, unified=False).shared("1-2-x")
    for nice, sandboxes, weight in ((0, 1, 1024), (10, 1, 110), (10, 16, 1759), (19, 1, 15)):
        weigh(shared, nice=nice, sandboxes=sandboxes)
        assert (shared.folders[0] / "cpu.shares").read_text() == str(weight)

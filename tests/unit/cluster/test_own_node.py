"""The end of one of Ray's processes on this machine is seen when it happens; `tests/e2e/test_killed.py` does it to Ray itself."""

from __future__ import annotations

import asyncio
import os

import psutil
import pytest

from rl_agent.cluster.own_node import OwnNode
from rl_agent.errors import InfraError


async def test_the_end_of_one_is_an_error_that_names_it() -> None:
    node = OwnNode()
    store, raylet = [await asyncio.create_subprocess_exec("sleep", "600") for _ in range(2)]
    watching = asyncio.create_task(node.watch({"global control store": store.pid, "raylet": raylet.pid}))
    await asyncio.sleep(0)
    assert not node.lost
    raylet.kill()
    with pytest.raises(InfraError, match=r"Ray's raylet .* resume=<run folder>"):
        await asyncio.wait_for(watching, 30)
    assert node.lost
    store.kill()
    await asyncio.gather(store.wait(), raylet.wait())


async def test_one_that_is_gone_already_is_noticed_too() -> None:
    node, gone = OwnNode(), await asyncio.create_subprocess_exec("true")
    await gone.wait()
    with pytest.raises(InfraError, match="Ray's raylet"):
        await asyncio.wait_for(node.watch({"raylet": gone.pid}), 30)
    assert node.lost


async def test_a_watch_that_is_over_leaves_no_file_open() -> None:
    before = psutil.Process().num_fds()
    watching = asyncio.create_task(OwnNode().watch({"this": os.getpid()}))
    await asyncio.sleep(0)
    watching.cancel()
    await asyncio.wait([watching])
    assert psutil.Process().num_fds() == before

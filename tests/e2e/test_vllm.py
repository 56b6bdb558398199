"""Facts of the real vLLM that the adapter stands on."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import numpy as np
import pytest

import rl_agent
from rl_agent.config.engine import VllmConfig
from rl_agent.config.load import build
from rl_agent.engine.base import EngineServer
from rl_agent.tokens.turn import Sampling

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
POLICY = Path(rl_agent.__file__).parent / "trainer" / "warm_start" / "codex"
CONTEXT = 8_192


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[tuple[EngineServer, str]]:
    """A server of vLLM with a policy that never ends a reply by itself, and its address."""
    folder = Path(shutil.copytree(POLICY, tmp_path / "model"))
    for path in (folder / "config.json", folder / "generation_config.json"):
        if path.is_file():
            kept = {k: v for k, v in json.loads(path.read_text()).items() if k != "eos_token_id"}
            path.write_text(json.dumps(kept))
    built = build(VllmConfig(dtype="float32", eager=True, max_num_seqs=8, cpu_kv_cache_gb=1), EngineServer)
    url = await built.start(
        model_folder=folder, log=tmp_path / "vllm.log", weight_backend="disk", max_context_tokens=CONTEXT
    )
    try:
        yield built, url
    finally:
        await built.stop()


async def running(url: str) -> float:
    """Requests that the engine works on."""
    async with aiohttp.ClientSession() as http, http.get(f"{url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:num_requests_running"))


async def until_running(url: str, count: int) -> None:
    """Wait until it works on so many."""
    while await running(url) != count:  # noqa: ASYNC110 (the server tells nobody)
        await asyncio.sleep(0.05)


async def test_a_call_that_is_cancelled_is_gone_from_the_engine_within_two_seconds(
    server: tuple[EngineServer, str],
) -> None:
    built, url = server
    prompt = np.arange(1, 200, dtype=np.int32)
    async with built.client(url) as engine, asyncio.timeout(60):
        async with asyncio.TaskGroup() as tasks:
            calls = [
                tasks.create_task(engine.generate(prompt, Sampling(max_tokens=CONTEXT - 200), request_id=f"r{n}"))
                for n in range(2)
            ]
            await until_running(url, 2)
            for call in calls:
                call.cancel()
        async with asyncio.timeout(2.0):
            await until_running(url, 0)
        assert all(call.cancelled() for call in calls)

"""A weight push in the middle of a long reply, with the real vLLM: what each update mode does with it, and that its spans tell the truth."""

from __future__ import annotations

import asyncio
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import aiohttp
import numpy as np
import pytest

from rl_agent.adapters.generate import Parts, generate_whole
from rl_agent.config.engine import UpdateMode
from rl_agent.engine.vllm_client import VllmEngine
from rl_agent.engine.vllm_server import VllmConfig
from rl_agent.tokens.turn import Sampling
from rl_agent.weights.disk import DiskConfig
from tests.e2e import trainer_process
from tests.e2e.test_vllm import CONTEXT, endless

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rl_agent.engine.vllm_server import VllmServer
    from rl_agent.tokens.turn import Generation

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
REPLY = 240
BEFORE = 20
"""Tokens that are sampled before the push begins."""
TOLERANCE = 2e-3
PROMPT = np.arange(30, 230, dtype=np.int32)


async def counted(url: str, name: str) -> float:
    """A counter of vLLM's."""
    async with aiohttp.ClientSession() as http, http.get(f"{url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name}{{", f"{name} ")))


@pytest.fixture
def trainer() -> Iterator[Callable[..., Any]]:
    """Calls a function of `trainer_process` over there, and gives a future of its result."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:

        def call(function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
            return asyncio.get_running_loop().run_in_executor(pool, function, *arguments)

        yield call
        pool.submit(trainer_process.close).result(timeout=30)


async def reply_across_a_push(
    engine: VllmEngine, trainer: Callable[..., Any], version: int
) -> tuple[Generation, Parts, float]:
    """A reply during which weights number `version` come, its parts, and the prompt tokens that the server computed for it."""
    url, parts = engine.url, Parts()
    sampled, computed = (
        await counted(url, "vllm:generation_tokens_total"),
        await counted(url, "vllm:prompt_tokens_total"),
    )
    await trainer(trainer_process.step, version)
    update, probe = await trainer(trainer_process.push, version), (await trainer(trainer_process.announce, version))[1]
    async with asyncio.TaskGroup() as tasks:
        sampling = Sampling(max_tokens=REPLY, seed=version)
        request = f"session-turn{version}"
        reply = tasks.create_task(generate_whole(engine, PROMPT, sampling, request_id=request, parts=parts))
        while await counted(url, "vllm:generation_tokens_total") < sampled + BEFORE:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        assert await engine.push(update, None) == 0.0
    whole = reply.result()
    computed = await counted(url, "vllm:prompt_tokens_total") - computed
    assert np.abs(await engine.score(probe.tokens) - probe.logprobs).max() < TOLERANCE  # the new weights are there
    return whole, parts, computed


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_each_update_mode_does_with_a_running_reply_what_it_says(
    tmp_path: Path, trainer: Callable[..., Any]
) -> None:
    folder = endless(tmp_path / "model")
    await trainer(trainer_process.start, folder, DiskConfig(), tmp_path / "run")
    server: VllmServer = VllmConfig(
        dtype="float32", eager=True, max_num_seqs=8, cpu_kv_cache_gb=1, probe_tolerance=TOLERANCE
    ).build()
    url = await server.start(
        model_folder=folder, log=tmp_path / "vllm.log", weight_backend="disk", max_context_tokens=CONTEXT
    )
    try:
        for number, mode in enumerate((UpdateMode.drain, UpdateMode.keep, UpdateMode.abort)):
            async with VllmEngine(
                url=url, request_timeout_s=120, probe_tolerance=TOLERANCE, update_mode=mode
            ) as engine:
                await in_mode(engine, trainer, number)
    finally:
        await server.stop()


async def in_mode(engine: VllmEngine, trainer: Callable[..., Any], number: int) -> None:
    version, mode = number + 1, engine.update_mode
    reply, parts, computed = await reply_across_a_push(engine, trainer, version)
    assert len(reply.tokens) == REPLY
    versions = [span.version for span in reply.spans]
    new = await trainer(trainer_process.logprobs, np.concatenate([PROMPT, reply.tokens]))
    start = len(PROMPT) - 1
    if mode is UpdateMode.drain:
        assert versions == [number]  # it ended with the weights that it began with
        assert parts.recomputed == 0
        assert np.abs(reply.logprobs - new[start:]).max() > TOLERANCE  # which are not the new ones
        return
    assert versions == [number, version]
    first, last = reply.spans
    assert first.end >= BEFORE - 1
    gap = np.abs(reply.logprobs - new[start:])
    assert gap[: first.end].max() > TOLERANCE
    if mode is UpdateMode.keep:
        assert (len(parts.pieces), parts.recomputed) == (1, 0)
        assert computed == len(PROMPT)  # nothing was computed again
        assert await counted(engine.url, "vllm:num_preemptions_total") == 0
    else:
        assert len(parts.pieces) == 2
        again = len(PROMPT) + first.end
        assert parts.recomputed == again
        assert computed == len(PROMPT) + again
        assert gap[last.start :].max() < TOLERANCE  # all of it, prompt and all, by the new weights alone

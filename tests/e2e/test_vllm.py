"""Facts of the real vLLM that the adapter stands on."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import asynccontextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import numpy as np
import pytest

import rl_agent
from rl_agent.engine.vllm_server import VllmConfig
from rl_agent.errors import EngineError, WeightPushError
from rl_agent.tokens.turn import Sampling
from rl_agent.weights.disk import DiskConfig
from rl_agent.weights.stream import GlooConfig
from tests.e2e import trainer_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from rl_agent.engine.vllm_client import VllmEngine
    from rl_agent.engine.vllm_server import VllmServer

pytestmark = [
    pytest.mark.long,
    pytest.mark.e2e,
    pytest.mark.slow,
]  # in `make test`: test_train.py pushes weights to vLLM
POLICY = Path(rl_agent.__file__).parent / "embedded" / "warm_start" / "codex"
CONTEXT = 8_192


def sockets(folder: Path) -> list[Path] | None:
    return [path for path in folder.iterdir() if path.is_socket()] if folder.exists() else None


@asynccontextmanager
async def serving(folder: Path, log: Path, backend: str = "disk") -> AsyncIterator[tuple[VllmEngine, str]]:
    """An engine and its address. Its temporary files must be its own, and go with it."""
    config = VllmConfig(dtype="float32", eager=True, max_num_seqs=8, cpu_kv_cache_gb=1, probe_tolerance=1e-4)
    server: VllmServer = config.build()
    url = await server.start(model_folder=folder, log=log, weight_backend=backend, max_context_tokens=CONTEXT)
    assert server._temporary is not None
    temporary = Path(server._temporary.name)
    try:
        assert sockets(temporary)
        async with server.client(url) as engine:
            yield engine, url
    finally:
        await server.stop()
    assert sockets(temporary) is None


def endless(folder: Path) -> Path:
    """A policy that never ends a reply by itself."""
    shutil.copytree(POLICY, folder)
    for path in (folder / "config.json", folder / "generation_config.json"):
        kept = {k: v for k, v in json.loads(path.read_text()).items() if k != "eos_token_id"}
        path.write_text(json.dumps(kept))
    return folder


async def running(url: str) -> float:
    """Requests that the engine works on."""
    async with aiohttp.ClientSession() as http, http.get(f"{url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:num_requests_running"))


async def until_running(url: str, count: int) -> None:
    """Wait until it works on so many."""
    while await running(url) != count:  # noqa: ASYNC110 (the server tells nobody)
        await asyncio.sleep(0.05)


async def test_a_call_that_is_cancelled_is_gone_from_the_engine_within_two_seconds(tmp_path: Path) -> None:
    prompt = np.arange(1, 200, dtype=np.int32)
    async with serving(endless(tmp_path / "model"), tmp_path / "vllm.log") as (engine, url), asyncio.timeout(60):
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


@pytest.fixture
def trainer() -> Iterator[Callable[..., Any]]:
    """Calls a function of `trainer_process` in a trainer's process, and gives a future of its result."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:

        def call(function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
            return asyncio.get_running_loop().run_in_executor(pool, function, *arguments)

        yield call
        pool.submit(trainer_process.close).result(timeout=30)


async def push(trainer: Callable[..., Any], engine: VllmEngine, version: int) -> tuple[float, np.ndarray]:
    """As a run does; the largest difference on the probe, and the trainer's log-probabilities of it."""
    announced, probe = await trainer(trainer_process.announce, version)
    if announced is None:
        return await engine.push(await trainer(trainer_process.push, version), probe), probe.logprobs
    difference, _ = await asyncio.gather(engine.push(announced, probe), trainer(trainer_process.push, version))
    return difference, probe.logprobs


@pytest.mark.parametrize(
    ("backend", "tied", "versions"),
    [
        ("disk", False, 20),
        ("gloo", True, 20),
    ],
)
async def test_versions_arrive_one_after_the_other_and_each_is_sampled_with(
    tmp_path: Path, trainer: Callable[..., Any], backend: str, tied: bool, versions: int
) -> None:
    bare, folder = tmp_path / "bare", tmp_path / "model"
    shutil.copytree(POLICY, bare, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((bare / "config.json").read_text()) | {"tie_word_embeddings": tied, "initializer_range": 0.1}
    (bare / "config.json").write_text(json.dumps(config))
    sender = DiskConfig() if backend == "disk" else GlooConfig(bucket_mb=1, timeout_s=60)
    await trainer(trainer_process.start, bare, sender, tmp_path / "run")
    await trainer(trainer_process.export, folder)
    async with serving(folder, tmp_path / "vllm.log", backend) as (engine, _url):
        seen: list[np.ndarray] = []
        for version in range(1, versions + 1):
            await trainer(trainer_process.step, version)
            difference, logprobs = await push(trainer, engine, version)
            assert difference < 1e-4
            seen.append(logprobs)
            reply = await engine.generate(trainer_process.PROBE, Sampling(max_tokens=4), request_id=f"after-{version}")
            assert {span.version for span in reply.spans} == {version}
        moved = [float(np.abs(one - other).max()) for one, other in itertools.pairwise(seen)]
        assert min(moved) > 1e-3  # the probe tells each version from the one before


async def test_a_push_whose_sender_never_comes_fails_and_serves_nothing_half_new(
    tmp_path: Path, trainer: Callable[..., Any]
) -> None:
    await trainer(trainer_process.start, POLICY, GlooConfig(bucket_mb=1, timeout_s=5), tmp_path / "run")
    async with serving(POLICY, tmp_path / "vllm.log", "gloo") as (engine, _url):
        announced, probe = await trainer(trainer_process.announce, 1)
        with pytest.raises(WeightPushError, match="weights number 1"):
            async with asyncio.timeout(60):
                await engine.push(announced, probe)
        with pytest.raises((EngineError, TimeoutError)):  # it stays paused: nobody samples from half an update
            async with asyncio.timeout(5):
                await engine.generate(trainer_process.PROBE, Sampling(max_tokens=4), request_id="after")


async def test_a_trainer_killed_in_the_middle_of_a_push_ends_it_and_nothing_half_new_is_sampled(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:

        def trainer(function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
            return asyncio.get_running_loop().run_in_executor(pool, function, *arguments)

        await trainer(trainer_process.start, POLICY, GlooConfig(bucket_mb=1, timeout_s=30), tmp_path / "run")
        async with serving(POLICY, tmp_path / "vllm.log", "gloo") as (engine, _url), asyncio.timeout(240):
            announced, probe = await trainer(trainer_process.announce, 1)
            sent = trainer(trainer_process.push_a_part, 1, tmp_path / "told")
            pushed = asyncio.ensure_future(engine.push(announced, probe))
            while not (tmp_path / "told").exists():  # noqa: ASYNC110 (another process writes it)
                await asyncio.sleep(0.05)
            os.kill(int((tmp_path / "told").read_text()), signal.SIGKILL)
            with pytest.raises(BrokenProcessPool):
                await sent
            with pytest.raises(WeightPushError, match="weights number 1"):
                await pushed
            with pytest.raises((EngineError, TimeoutError)):
                async with asyncio.timeout(5):
                    await engine.generate(trainer_process.PROBE, Sampling(max_tokens=4), request_id="after")

"""The client against a scripted server: what is unusable is refused, and a push keeps its order."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from aiohttp import web

from rl_agent.config.engine import UpdateMode
from rl_agent.engine.base import EngineLoad, EngineLostError
from rl_agent.engine.vllm_client import VllmEngine
from rl_agent.errors import EngineError, LawError, WeightPushError
from rl_agent.tokens.turn import FinishReason, Sampling
from rl_agent.weights.base import Probe, WeightUpdate
from tests.serving import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PROMPT = np.array([1, 2, 3], dtype=np.int32)


def choice(**changes: Any) -> dict[str, Any]:
    plain = {
        "token_ids": [5, 6],
        "finish_reason": "stop",
        "logprobs": {"content": [{"token_id": 5, "logprob": -0.5}, {"token_id": 6, "logprob": -1.0}]},
        "weight_versions": [{"version": "3", "start": 0, "end": 1}, {"version": "4", "start": 1, "end": 2}],
    }
    return {**plain, **changes}


class Server:
    """Answers generations with `choice`, prompt log-probabilities with -1 each, and remembers what was asked."""

    def __init__(
        self, answer: dict[str, Any] | None = None, fails_at: str | None = None, page: str = "", drains_s: float = 0.0
    ) -> None:
        self.answer = answer or choice()
        self.drains_s = drains_s
        self.page = page
        self.queries: list[dict[str, str]] = []
        self.fails_at = fails_at
        self.asked: list[str] = []
        self.bodies: list[Any] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        self.queries.append(dict(request.query))
        if request.path == "/metrics":
            return web.Response(text=self.page)
        body = await request.json() if request.can_read_body else None
        self.bodies.append(body)
        if request.path == "/pause":
            await asyncio.sleep(self.drains_s)
        if request.path == self.fails_at:
            return web.json_response({"error": "no"}, status=500)
        if request.path == "/inference/v1/generate":
            prompt = body["token_ids"]
            rows = [None, *({str(token): {"logprob": -1.0}} for token in prompt[1:])]
            return web.json_response({"choices": [self.answer], "prompt_logprobs": rows, "usage": {}})
        return web.json_response({})


@asynccontextmanager
async def engine(server: Server, mode: UpdateMode = UpdateMode.drain) -> AsyncIterator[VllmEngine]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    async with (
        serving(app) as port,
        VllmEngine(
            url=f"http://127.0.0.1:{port}", request_timeout_s=5, probe_tolerance=1e-3, update_mode=mode
        ) as client,
    ):
        yield client


async def test_a_generation_carries_tokens_log_probabilities_and_versions() -> None:
    server = Server()
    async with engine(server) as client:
        got = await client.generate(PROMPT, Sampling(max_tokens=7, stop_token_ids=(9,)), request_id="r")
    assert got.tokens.tolist() == [5, 6]
    assert got.logprobs.tolist() == [-0.5, -1.0]
    assert got.weight_versions().tolist() == [3, 4]
    assert got.finish_reason is FinishReason.STOP
    parameters = server.bodies[0]["sampling_params"]
    assert (parameters["max_tokens"], parameters["stop_token_ids"], parameters["temperature"]) == (7, [9], 1.0)


@pytest.mark.parametrize(
    "broken",
    [
        {"logprobs": None},
        {"logprobs": {"content": [{"token_id": 5, "logprob": -0.5}]}},
        {"logprobs": {"content": [{"token_id": 5, "logprob": -0.5}, {"token_id": 7, "logprob": -1.0}]}},
        {"weight_versions": [{"version": "3", "start": 0, "end": 1}]},
        {"weight_versions": None},
    ],
)
async def test_missing_or_miscounted_numbers_fail_the_generation(broken: dict[str, Any]) -> None:
    async with engine(Server(choice(**broken))) as client:
        with pytest.raises(LawError):
            await client.generate(PROMPT, Sampling(), request_id="r")


async def test_a_refusal_of_the_server_is_an_engine_error_with_its_words() -> None:
    async with engine(Server(fails_at="/inference/v1/generate")) as client:
        with pytest.raises(EngineError, match=r"500.*no"):
            await client.generate(PROMPT, Sampling(), request_id="r")


async def test_no_server_is_an_engine_error() -> None:
    async with VllmEngine(url="http://127.0.0.1:9", request_timeout_s=5, probe_tolerance=1e-3) as client:
        with pytest.raises(EngineLostError, match="no response from vLLM"):
            await client.generate(PROMPT, Sampling(), request_id="r")


def probe(logprob: float) -> Probe:
    return Probe(tokens=PROMPT, logprobs=np.full(2, logprob, dtype=np.float32))


UPDATE = WeightUpdate(version=4, update_info={"path": "/weights"})


async def test_a_push_pauses_updates_drops_the_cache_resumes_and_verifies_in_this_order() -> None:
    server = Server()
    async with engine(server) as client:
        assert await client.push(UPDATE, probe(-1.0)) == 0.0
        assert await client.push(UPDATE, None) == 0.0
    life = [
        "/pause",
        "/start_weight_update",
        "/update_weights",
        "/finish_weight_update",
        "/reset_prefix_cache",
        "/resume",
    ]
    assert server.asked == ["/init_weight_transfer_engine", *life, "/inference/v1/generate", *life]
    assert {"weight_version": "4"} in server.bodies


async def test_a_push_that_does_not_agree_on_the_probe_is_refused() -> None:
    async with engine(Server()) as client:
        with pytest.raises(WeightPushError, match=r"differ by 0\.5"):
            await client.push(UPDATE, probe(-1.5))


async def test_a_failed_push_stays_paused_and_says_which_weights() -> None:
    server = Server(fails_at="/update_weights")
    async with engine(server) as client:
        with pytest.raises(WeightPushError, match="weights number 4"):
            await client.push(UPDATE, probe(-1.0))
    assert "/resume" not in server.asked


@pytest.mark.parametrize(
    ("mode", "pause"),
    [(UpdateMode.drain, "wait"), (UpdateMode.keep, "keep"), (UpdateMode.abort, "abort")],
)
async def test_a_push_pauses_as_configured_and_keep_has_nothing_computed_again(mode: UpdateMode, pause: str) -> None:
    server = Server()
    async with engine(server, mode) as client:
        await client.push(UPDATE, None)
        await client.generate(PROMPT, Sampling(), request_id="s-t-0")
    kept = mode is UpdateMode.keep
    assert server.queries[server.asked.index("/pause")] == {"mode": pause} | ({"clear_cache": "false"} if kept else {})
    assert ("/reset_prefix_cache" in server.asked) is not kept
    assert server.bodies[-1].get("cache_salt") == ("v4" if kept else None)  # other weights' prefixes are not its own


async def test_a_push_waits_for_running_replies_as_long_as_a_request_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_agent.engine.vllm_client._CONTROL_TIMEOUT_S", 1.5)
    async with engine(Server(drains_s=2.0)) as client:
        assert await client.push(UPDATE, probe(-1.0)) == 0.0


async def test_a_push_that_takes_too_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_agent.engine.vllm_client._CONTROL_TIMEOUT_S", 0.0)
    async with engine(Server()) as client:
        with pytest.raises(WeightPushError, match=r"weights number 4 did not reach .*TimeoutError"):
            await client.push(UPDATE, None)


async def test_an_engine_is_met_again_only_when_the_meeting_point_is_another_one() -> None:
    server = Server()
    async with engine(server) as client:
        for point in ("a", "a", "b"):
            await client.push(WeightUpdate(version=1, update_info={}, init_info={"host": point}), None)
    assert server.asked.count("/init_weight_transfer_engine") == 2


async def test_the_load_is_read_from_the_metrics_page_and_summed_over_inner_engines() -> None:
    page = """# HELP vllm:num_requests_running x
vllm:num_requests_running{engine="0",model_name="policy"} 3.0
vllm:num_requests_running{engine="1",model_name="policy"} 2.0
vllm:num_requests_waiting{engine="0",model_name="policy"} 7.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 5.0
vllm:kv_cache_usage_perc{engine="0",model_name="policy"} 0.25
"""
    async with engine(Server(page=page)) as client:
        assert await client.load() == EngineLoad(kv_cache_usage=0.25, running=5, waiting=7)
    async with engine(Server(page="")) as client:
        assert await client.load() == EngineLoad()


async def test_sleep_waits_for_requests_and_wake_takes_everything_back() -> None:
    server = Server()
    async with engine(server) as client:
        await client.sleep()
        await client.wake()
    assert server.asked == ["/sleep", "/wake_up"]
    assert server.queries == [{"level": "1", "mode": "wait"}, {}]

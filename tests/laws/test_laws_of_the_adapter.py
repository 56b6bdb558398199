"""Laws 3, 4, 6, 7 and 9 where the adapter keeps them; each with the sabotage that must raise the alarm.

3. The configured policy is what is sampled. 4. Missing is not zero. 6. No stranger samples. 7. A retried request is answered,
not resampled. 9. Versions are known.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aiohttp
import numpy as np
import pytest

from rl_agent.adapters import server as server_module
from rl_agent.adapters.anthropic_messages import AnthropicMessages
from rl_agent.adapters.record import AdapterLimits
from rl_agent.adapters.server import AdapterServer
from rl_agent.errors import LawError
from rl_agent.tokens import graph as graph_module
from rl_agent.tokens.segment import NOT_SAMPLED
from rl_agent.tokens.template_renderer import TemplateRenderer
from rl_agent.tokens.turn import FinishReason, Generation, Sampling, VersionSpan
from tests.scripted import ScriptedEngine, encode, save_tokenizer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rl_agent.adapters.session import Session

BODY = {"model": "m", "max_tokens": 10, "temperature": 0.0, "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> TemplateRenderer:
    return TemplateRenderer(save_tokenizer(tmp_path_factory.mktemp("tokenizer")))


@asynccontextmanager
async def serving(renderer: TemplateRenderer, engine: Any) -> AsyncIterator[tuple[AdapterServer, Session, Any]]:
    server = AdapterServer(
        dialects=[AnthropicMessages()],
        engine=engine,
        renderer=renderer,
        sampling=Sampling(temperature=0.9, max_tokens=50),
        limits=AdapterLimits(drain_s=0.2),
    )
    async with server, aiohttp.ClientSession() as http:
        session = server.open_session("r")

        async def post(body: dict[str, Any], token: str = session.token, path: str = session.base_path) -> int:
            url = f"http://127.0.0.1:{server.port}{path}/v1/messages"
            async with http.post(url, json=body, headers={"x-api-key": token}) as response:
                await response.read()
                return response.status

        yield server, session, post


async def _retry(renderer: TemplateRenderer) -> int:
    engine = ScriptedEngine(renderer, ["Ok.<|im_end|>"])
    async with serving(renderer, engine) as (_, _, post):
        assert [await post(BODY), await post(BODY | {"max_tokens": 99, "thinking": {}})] == [200, 200]
    return len(engine.calls)


async def test_law_7_a_retry_is_answered_and_not_sampled_again(renderer: TemplateRenderer) -> None:
    assert await _retry(renderer) == 1


async def test_law_7_sabotage_fingerprints_that_differ_sample_again(
    renderer: TemplateRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = graph_module.SessionGraph.locate
    numbers = iter(range(100))

    def locate(self: Any, *args: Any) -> Any:
        return replace(honest(self, *args), fingerprint=str(next(numbers)).encode())

    monkeypatch.setattr(graph_module.SessionGraph, "locate", locate)
    assert await _retry(renderer) == 2


async def _stranger(renderer: TemplateRenderer) -> tuple[list[int], int]:
    engine = ScriptedEngine(renderer, ["Ok.<|im_end|>"])
    async with serving(renderer, engine) as (server, session, post):
        other = server.open_session("other")
        statuses = [await post(BODY, token=other.token), await post(BODY, path="/s/guess"), await post(BODY, token="")]
        await server.close_session(session.id)
        statuses.append(await post(BODY))
    return statuses, len(engine.calls)


async def test_law_6_no_stranger_samples(renderer: TemplateRenderer) -> None:
    assert await _stranger(renderer) == ([401] * 4, 0)


async def test_law_6_sabotage_without_the_token_check_strangers_sample(
    renderer: TemplateRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_has_token", lambda request, token: True)
    statuses, calls = await _stranger(renderer)
    assert statuses[0] == 200
    assert calls > 0


async def test_law_6_ids_and_tokens_are_never_used_twice(renderer: TemplateRenderer) -> None:
    async with serving(renderer, ScriptedEngine(renderer, ["Ok.<|im_end|>"])) as (server, _, _):
        sessions = [server.open_session("the same rollout") for _ in range(200)]
        assert len({s.id for s in sessions} | {s.token for s in sessions}) == 400


async def test_law_3_the_clients_temperature_is_ignored_and_its_limit_can_only_lower(
    renderer: TemplateRenderer,
) -> None:
    engine = ScriptedEngine(renderer, ["Ok.<|im_end|>"])
    async with serving(renderer, engine) as (_, _, post):
        await post(BODY | {"top_p": 0.1, "top_k": 1})
        await post(BODY | {"max_tokens": 5000, "messages": [{"role": "user", "content": "other"}]})
    first, second = (sampling for _, sampling in engine.calls)
    assert (first.temperature, first.top_p, first.top_k, first.max_tokens) == (0.9, 1.0, -1, 10)
    assert second.max_tokens == 50


@pytest.mark.parametrize("fault", ["missing logprob", "nan", "no version"])
async def test_law_4_and_9_an_answer_with_holes_fails_the_turn_and_trains_nothing(
    renderer: TemplateRenderer, fault: str
) -> None:
    class Broken:
        async def generate(self, tokens: Any, sampling: Sampling, **kwargs: Any) -> Generation:
            sampled = encode(renderer, "Ok.<|im_end|>")
            logprobs = np.full(len(sampled) - (fault == "missing logprob"), -1.0, dtype=np.float32)
            if fault == "nan":
                logprobs[0] = np.nan
            spans = () if fault == "no version" else (VersionSpan(version=1, start=0, end=len(sampled)),)
            return Generation(tokens=sampled, logprobs=logprobs, finish_reason=FinishReason.STOP, spans=spans)

    async with serving(renderer, Broken()) as (server, session, post):
        assert await post(BODY) == 400
        record = await server.close_session(session.id)
    assert isinstance(record.failure, LawError)
    assert record.segments == ()


async def test_law_9_every_trained_token_carries_its_weight_version(renderer: TemplateRenderer) -> None:
    async with serving(renderer, ScriptedEngine(renderer, ["Ok.<|im_end|>"])) as (server, session, post):
        await post(BODY)
        record = await server.close_session(session.id)
    (segment,) = record.segments
    assert (segment.weight_versions[segment.loss_mask] != NOT_SAMPLED).all()
    assert (segment.weight_versions[~segment.loss_mask] == NOT_SAMPLED).all()

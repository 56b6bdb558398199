"""The adapter over real HTTP, with a scripted policy: both dialects, retries, strangers, limits, faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson
import pytest

from rl_agent.adapters.anthropic_messages import AnthropicMessages
from rl_agent.adapters.openai_responses import OpenAIResponses
from rl_agent.adapters.record import AdapterLimits
from rl_agent.adapters.server import AdapterServer
from rl_agent.errors import ConfigError, EngineError, LawError
from rl_agent.tokens.segment import SegmentKind
from rl_agent.tokens.turn import FinishReason, Sampling
from tests.scripted import ScriptedEngine, call

if TYPE_CHECKING:
    from rl_agent.adapters.session import Session
    from rl_agent.tokens.template_renderer import TemplateRenderer

CLAUDE, CODEX = "anthropic_messages", "openai_responses"
BOTH = pytest.mark.parametrize("name", [CLAUDE, CODEX])
STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
THREE = [call("cat calc.py"), "<think>hm</think>I fix it." + call("sed"), "Done.<|im_end|>"]


@dataclass
class Agent:
    """A client of one dialect with a history of its own, as the CLIs keep it."""

    name: str
    http: aiohttp.ClientSession
    server: AdapterServer
    session: Session
    stream: bool = False
    history: list[Any] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    token: str | None = None
    received: bytes = b""
    """What has come of the newest reply."""

    def url(self, path: str | None = None) -> str:
        path = path or ("/v1/messages?beta=true" if self.name == CLAUDE else "/v1/responses")
        return f"http://127.0.0.1:{self.server.port}{self.session.base_path}{path}"

    def auth(self) -> dict[str, str]:
        token = self.token if self.token is not None else self.session.token
        return {"x-api-key": token} if self.name == CLAUDE else {"Authorization": f"Bearer {token}"}

    def user(self, text: str) -> None:
        content = text if self.name == CLAUDE else [{"type": "input_text", "text": text}]
        self.history.append({"role": "user", "content": content})

    def body(self) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"command": {"type": "string"}}}
        if self.name == CLAUDE:
            tool = {"name": "Bash", "description": "d", "input_schema": schema}
            system = [{"type": "text", "text": "You are a robot."}, {"type": "text", "text": "You fix bugs."}]
            body = {"model": "m", "max_tokens": 32000, "system": system, "messages": self.history}
        else:
            tool = {"type": "function", "name": "Bash", "description": "d", "parameters": schema}
            developer = {
                "type": "message",
                "role": "developer",
                "content": [{"type": "input_text", "text": "You fix bugs."}],
            }
            body = {"model": "m", "input": [developer, *self.history], "store": False}
        return {**body, "tools": [tool], "stream": self.stream, **self.extra}

    async def post(
        self, body: dict[str, Any] | None = None, path: str | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        received = self.received = b""
        data = orjson.dumps(body if body is not None else self.body())
        async with self.http.post(self.url(path), data=data, headers=self.auth() | self.headers) as response:
            async for chunk in response.content.iter_any():
                received += chunk
                self.received = received
            return response.status, dict(response.headers), received

    async def leave(self, engine: ScriptedEngine) -> None:
        """Asks, and goes away once the generation has begun."""
        engine.started.clear()
        post = asyncio.create_task(self.post())
        await engine.started.wait()
        post.cancel()
        with pytest.raises(asyncio.CancelledError):
            await post

    async def ask(self) -> list[dict[str, Any]]:
        """The reply's blocks or items, read from the document or the stream; the answers of its calls go into the history."""
        status, _, raw = await self.post()
        assert status == 200, raw
        blocks = read(self.name, raw, self.stream)
        if self.name == CLAUDE:
            self.history.append({"role": "assistant", "content": blocks})
            results = [
                {"type": "tool_result", "tool_use_id": b["id"], "content": "out"}
                for b in blocks
                if b["type"] == "tool_use"
            ]
            if results:
                self.history.append({"role": "user", "content": results})
        else:
            self.history += blocks
            self.history += [
                {"type": b["type"] + "_output", "call_id": b["call_id"], "output": "out"}
                for b in blocks
                if "call_id" in b
            ]
        return blocks


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not become so")


def events(raw: bytes) -> list[tuple[str, dict[str, Any]]]:
    """The events of a stream."""
    found = []
    for part in raw.decode().strip().split("\n\n"):
        first, second = part.split("\n")
        assert first.startswith("event: ")
        assert second.startswith("data: ")
        found.append((first[7:], orjson.loads(second[6:])))
    return found


def read(name: str, raw: bytes, stream: bool) -> list[dict[str, Any]]:
    """What a client keeps of a reply."""
    if not stream:
        return orjson.loads(raw)["content" if name == CLAUDE else "output"]
    got = events(raw)
    assert all(data["type"] == kind for kind, data in got)
    if name == CODEX:
        assert [data["sequence_number"] for _, data in got] == list(range(len(got)))
        assert got[-1][0] == "response.completed"
        items = [data["item"] for kind, data in got if kind == "response.output_item.done"]
        assert items == got[-1][1]["response"]["output"]
        return items
    assert got[0][0] == "message_start"
    assert got[-1][0] == "message_stop"
    blocks: list[dict[str, Any]] = []
    for kind, data in got:
        if kind == "content_block_start":
            blocks.append(dict(data["content_block"]))
        elif kind == "content_block_delta":
            delta = {k: v for k, v in data["delta"].items() if k != "type"}
            ((field_name, value),) = delta.items()
            if field_name == "partial_json":
                blocks[-1]["input"] = orjson.loads(value)
            else:
                blocks[-1][field_name] += value
    return blocks


Start = Callable[..., Any]


@pytest.fixture
def start(renderer: TemplateRenderer) -> Start:
    """A running server with one agent."""

    @asynccontextmanager
    async def started(
        name: str, script: Any = THREE, *, limits: AdapterLimits | None = None, keepalive_s: float = 10.0, **agent: Any
    ) -> AsyncIterator[tuple[Agent, ScriptedEngine]]:
        engine = ScriptedEngine(renderer, script)
        dialect = AnthropicMessages(drop_system=["You are a .*"]) if name == CLAUDE else OpenAIResponses()
        server = AdapterServer(
            dialects=[dialect],
            engine=engine,
            renderer=renderer,
            sampling=Sampling(max_tokens=200, temperature=0.7),
            limits=limits or AdapterLimits(drain_s=0.5),
            keepalive_s=keepalive_s,
        )
        async with server, aiohttp.ClientSession() as http:
            client = Agent(name, http, server, server.open_session("rollout-1"), **agent)
            client.user("Fix calc.py")
            yield client, engine

    return started


@BOTH
@STREAMS
async def test_a_run_of_three_turns_is_one_segment_of_exactly_what_was_sampled(
    start: Start, renderer: TemplateRenderer, name: str, stream: bool
) -> None:
    async with start(name, stream=stream) as (agent, engine):
        for _ in THREE:
            blocks = await agent.ask()
        text = blocks[-1]["text"] if name == CLAUDE else blocks[-1]["content"][0]["text"]
        assert text == "Done."
        record = await agent.server.close_session(agent.session.id)
    assert record.turns == tuple(THREE)
    assert record.trainable_share == 1.0
    assert record.failure is None
    assert (record.forks, record.excluded) == ({}, {})
    (segment,) = record.segments
    assert renderer.text(segment.tokens[segment.loss_mask]) == "".join(THREE)
    assert engine.prompts[2].tolist() == segment.tokens[: len(engine.prompts[2])].tolist()
    assert "robot" not in renderer.text(segment.tokens)
    assert renderer.text(segment.tokens).startswith("<|im_start|>system\nYou fix bugs.\nTools: Bash(command)<|im_end|>")


@BOTH
async def test_usage_is_honest(start: Start, name: str) -> None:
    async with start(name) as (agent, engine):
        _, _, raw = await agent.post()
        usage = orjson.loads(raw)["usage"]
        assert usage["input_tokens"] == len(engine.prompts[0])
        assert usage["output_tokens"] == len(
            (await agent.server.close_session(agent.session.id)).segments[0].tokens
        ) - len(engine.prompts[0])


@BOTH
@STREAMS
async def test_a_retry_gets_the_stored_reply(start: Start, name: str, stream: bool) -> None:
    async with start(name, stream=stream) as (agent, engine):
        first = await agent.post()
        agent.extra = {"temperature": 0.1} | (
            {"thinking": {"type": "adaptive"}} if name == CLAUDE else {"client_metadata": {}}
        )
        second = await agent.post()
        assert first[2] == second[2]
        assert len(engine.calls) == 1
        record = await agent.server.close_session(agent.session.id)
    assert record.stats.replayed == 1
    assert len(record.turns) == 1


@BOTH
async def test_equal_requests_at_one_time_share_one_generation(start: Start, name: str) -> None:
    async with start(name) as (agent, engine):
        engine.gate = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            posts = [group.create_task(agent.post()) for _ in range(3)]
            await until(lambda: agent.session.stats.joined == 2)
            engine.gate.set()
        assert len({p.result()[2] for p in posts}) == 1
        assert len(engine.calls) == 1
        assert agent.session.stats.joined == 2


@BOTH
@pytest.mark.parametrize("token", ["", "wrong", "é"])
async def test_a_wrong_token_is_refused(start: Start, name: str, token: str) -> None:
    async with start(name, token=token) as (agent, engine):
        status, _, raw = await agent.post()
        assert status == 401
        assert "error" in orjson.loads(raw)
        assert not engine.calls


@BOTH
async def test_unknown_and_closed_sessions_and_other_paths_are_strangers(start: Start, name: str) -> None:
    async with start(name) as (agent, engine):
        base = f"http://127.0.0.1:{agent.server.port}"
        for path in ("/", "/v1/messages", "/s/", "/s/nothing/v1/messages", "/s/nothing", "/healthz"):
            for method in ("GET", "POST"):
                async with agent.http.request(method, base + path, headers=agent.auth()) as response:
                    assert response.status == 401, path
        await agent.server.close_session(agent.session.id)
        assert (await agent.post())[0] == 401
        assert not engine.calls
        other = agent.server.open_session("rollout-2")
        async with agent.http.post(base + other.base_path + "/v1/messages", headers=agent.auth()) as response:
            assert response.status == 401


@BOTH
async def test_probes_are_answered(start: Start, name: str) -> None:
    async with start(name) as (agent, _):
        for method, path in (("HEAD", "/"), ("GET", "/"), ("HEAD", "/api/hello")):
            async with agent.http.request(method, agent.url(path)) as response:
                assert response.status == 200
        async with agent.http.get(agent.url("/v1/models"), headers=agent.auth()) as response:
            assert (await response.json())["data"][0]["id"] == "policy-model"
        async with agent.http.get(agent.url("/v1/models")) as response:
            assert response.status == 401
        assert (await agent.post(path="/v1/nothing"))[0] == 404


async def test_tokens_are_counted_without_sampling(start: Start) -> None:
    async with start(CLAUDE) as (agent, engine):
        status, _, raw = await agent.post(path="/v1/messages/count_tokens")
        assert status == 200
        await agent.post()
        assert orjson.loads(raw)["input_tokens"] == len(engine.prompts[0])


@BOTH
async def test_the_configured_policy_is_sampled_and_the_client_can_only_lower_the_limit(
    start: Start, name: str
) -> None:
    limit = "max_tokens" if name == CLAUDE else "max_output_tokens"
    async with start(name) as (agent, engine):
        agent.extra = {"temperature": 0.0, "top_p": 0.1, "stop_sequences": ["x"], limit: 100_000}
        await agent.post()
        agent.user("more")
        agent.extra[limit] = 50
        await agent.post()
        for (_, sampling), tokens in zip(engine.calls, (200, 50), strict=True):
            assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (0.7, 1.0, tokens)
            assert sampling.stop_token_ids == agent.session._renderer.stop_token_ids


@BOTH
@STREAMS
@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("<|im_end|>", "(no reply)"),
        ('<tool_call>{"name": oops}</tool_call><|im_end|>', '<tool_call>{"name": oops}</tool_call>'),
        ("<think>only thoughts</think><|im_end|>", "<think>only thoughts</think>"),
        ("x" * 400, "x" * 200),
    ],
    ids=["empty", "ill-formed", "no words", "cut"],
)
async def test_a_reply_that_is_no_reply_ends_the_run_and_still_trains(
    start: Start, name: str, stream: bool, said: str, shown: str
) -> None:
    async with start(name, [said], stream=stream) as (agent, _):
        status, _, raw = await agent.post()
        assert status == 200
        blocks = read(name, raw, stream)
        assert len(blocks) == 1
        text = blocks[0]["text"] if name == CLAUDE else blocks[0]["content"][0]["text"]
        assert shown.startswith(text)
        assert len(text) > 3
        assert (b"end_turn" if name == CLAUDE else b'"completed"') in raw
        assert b"max_tokens" not in raw
        record = await agent.server.close_session(agent.session.id)
    assert record.trainable_share == 1.0
    assert record.sampled_tokens > 0


@BOTH
async def test_after_the_last_turn_the_run_ends_cleanly(start: Start, name: str) -> None:
    async with start(name, limits=AdapterLimits(max_turns=1)) as (agent, engine):
        await agent.ask()
        (block,) = await agent.ask()
        text = block["text"] if name == CLAUDE else block["content"][0]["text"]
        assert text == "(turn limit reached)"
        assert len(engine.calls) == 1


@BOTH
async def test_a_full_context_is_said_in_the_vendors_words(start: Start, name: str) -> None:
    async with start(name, limits=AdapterLimits(max_context_tokens=20)) as (agent, engine):
        status, headers, raw = await agent.post()
        assert status == 400
        error = orjson.loads(raw)["error"]
        if name == CLAUDE:
            assert error["message"].startswith("prompt is too long: ")
            assert error["message"].endswith(" tokens > 19 maximum")
            assert "x-should-retry" not in headers
        else:
            assert error["code"] == "context_length_exceeded"
        assert not engine.calls


@BOTH
async def test_the_limit_of_a_generation_is_what_the_context_has_left(start: Start, name: str) -> None:
    async with start(name, limits=AdapterLimits(max_context_tokens=160)) as (agent, engine):
        await agent.post()
        assert engine.calls[0][1].max_tokens == 160 - len(engine.prompts[0])


@BOTH
@STREAMS
@pytest.mark.parametrize("error", [EngineError("engine down"), LawError("no logprob"), RuntimeError("a bug")])
async def test_a_failed_generation_ends_the_run_and_is_in_the_record(
    start: Start, name: str, stream: bool, error: Exception
) -> None:
    async with start(name, stream=stream) as (agent, engine):
        engine.error = error
        status, headers, _ = await agent.post()
        assert status == 400
        assert (await agent.post())[0] == 400
        assert len(engine.calls) == 1
        if name == CLAUDE:
            assert headers["x-should-retry"] == "false"
        record = await agent.server.close_session(agent.session.id)
    assert record.failure is error


@BOTH
async def test_keepalives_come_before_the_reply_and_an_error_after_them_is_an_event(start: Start, name: str) -> None:
    keepalive = b"event: ping" if name == CLAUDE else b"event: response.in_progress"
    async with start(name, keepalive_s=0.05, stream=True) as (agent, engine):
        for error in (None, EngineError("down")):
            engine.gate, engine.error = asyncio.Event(), error
            engine.started.clear()
            async with asyncio.TaskGroup() as group:
                post = group.create_task(agent.post())
                await engine.started.wait()
                await until(lambda: agent.received.count(keepalive) >= 2)
                engine.gate.set()
            status, _, raw = post.result()
            kinds = [kind for kind, _ in events(raw)]
            assert status == 200
            if name == CLAUDE:
                assert kinds[:2] == ["ping", "ping"]
                assert kinds[-1] == ("error" if error else "message_stop")
            else:
                assert kinds[:3] == ["response.created", "response.in_progress", "response.in_progress"]
                assert kinds[-1] == ("response.failed" if error else "response.completed")
                assert kinds.count("response.created") == 1
            agent.user("go on")


@BOTH
@STREAMS
async def test_a_client_that_goes_away_cancels_the_generation_and_may_ask_again(
    start: Start, name: str, stream: bool
) -> None:
    async with start(name, stream=stream, keepalive_s=0.05) as (agent, engine):
        engine.gate = asyncio.Event()
        await agent.leave(engine)
        async with asyncio.timeout(30):
            await engine.cancel_seen.wait()
        engine.gate.set()
        status, _, _ = await agent.post()
        assert status == 200
        assert len(engine.calls) == 2
        record = await agent.server.close_session(agent.session.id)
    assert record.stats.cancelled == 1
    assert record.trainable_share == 1.0


@BOTH
@STREAMS
async def test_a_client_whose_connection_broke_joins_its_generation_when_it_asks_again(
    start: Start, name: str, stream: bool
) -> None:
    async with start(name, stream=stream, limits=AdapterLimits(linger_s=30.0)) as (agent, engine):
        engine.gate = asyncio.Event()
        await agent.leave(engine)
        async with asyncio.TaskGroup() as group:
            again = group.create_task(agent.post())
            await until(lambda: agent.session.stats.joined == 1)
            engine.gate.set()
        assert again.result()[0] == 200
        record = await agent.server.close_session(agent.session.id)
    assert (len(engine.calls), engine.cancelled, record.stats.cancelled) == (1, 0, 0)
    assert record.trainable_share == 1.0


@BOTH
async def test_closing_does_not_wait_for_a_client_that_went_away(start: Start, name: str) -> None:
    async with start(name, limits=AdapterLimits(linger_s=60.0, drain_s=30.0)) as (agent, engine):
        engine.gate = asyncio.Event()
        await agent.leave(engine)
        async with asyncio.timeout(10):
            record = await agent.server.close_session(agent.session.id)
    assert (engine.cancelled, record.stats.cancelled) == (1, 1)


@BOTH
async def test_one_of_two_waiting_clients_may_go_away(start: Start, name: str) -> None:
    async with start(name) as (agent, engine):
        engine.gate = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            stays = group.create_task(agent.post())
            await engine.started.wait()
            leaves = group.create_task(agent.post())
            await until(lambda: agent.session.stats.joined == 1)
            leaves.cancel()
            await asyncio.sleep(0.1)  # in which the server sees it, and could stop the generation
            engine.gate.set()
        assert stays.result()[0] == 200
        assert engine.cancelled == 0


@BOTH
async def test_closing_waits_a_while_then_cancels_what_is_in_flight(start: Start, name: str) -> None:
    async with start(name) as (agent, engine):
        engine.gate = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            post = group.create_task(agent.post())
            await engine.started.wait()
            record = await agent.server.close_session(agent.session.id)
        assert engine.cancelled == 1
        assert post.result()[0] == 400
    assert record.segments == ()


@BOTH
async def test_a_generation_that_the_engine_aborts_is_continued_with_both_versions(start: Start, name: str) -> None:
    async with start(name, ["Half of ", "a sentence.<|im_end|>"]) as (agent, engine):
        whole = engine.generate

        async def generate(tokens: Any, sampling: Sampling, **kwargs: Any) -> Any:
            engine.finish = FinishReason.STOP if engine.calls else FinishReason.ABORT
            return await whole(tokens, sampling, **kwargs)

        engine.generate = generate  # type: ignore[method-assign]
        _, _, raw = await agent.post()
        assert b"Half of a sentence." in raw
        assert len(engine.prompts[1]) > len(engine.prompts[0])
        assert engine.calls[1][1].max_tokens < 200
        record = await agent.server.close_session(agent.session.id)
    assert record.trainable_share == 1.0
    assert len(record.turns) == 1


BAD_VALUES = [
    None,
    0,
    -1,
    1.5,
    True,
    "x",
    [],
    {},
    [None],
    [[]],
    [{}],
    [{"type": 3}],
    [{"role": "user"}],
    {"a": [1]},
    "\x00",
]


@BOTH
async def test_no_body_makes_an_internal_error(start: Start, name: str) -> None:
    key = "messages" if name == CLAUDE else "input"
    async with start(name, ["Ok.<|im_end|>"], limits=AdapterLimits(max_body_bytes=100_000)) as (agent, _):
        for raw in (b"", b"{", b"[]", b"null", b"\xff", b'{"a":' * 2000, b"[" * 2000, b'{"messages": "\\ud800"}'):
            async with agent.http.post(agent.url(), data=raw, headers=agent.auth()) as response:
                assert response.status == 400, raw[:20]
        async with agent.http.post(agent.url(), data=b" " * 200_000, headers=agent.auth()) as response:
            assert response.status == 413
            assert "error" in await response.json()
        good = agent.body()
        blocks = [
            "text",
            "tool_use",
            "tool_result",
            "thinking",
            "function_call",
            "reasoning",
            "custom_tool_call",
            "image",
        ]
        entries = [{"role": role, "content": [{"type": t}]} for role in ("user", "assistant") for t in blocks]
        entries += [{"type": t} for t in blocks] + [
            {"type": "message", "role": r, "content": 3} for r in ("user", "x", 3)
        ]
        bodies = [good | {field: value} for field in (*good, "instructions") for value in BAD_VALUES]
        bodies += [good | {key: [entry]} for entry in entries]
        for body in bodies:
            status, _, _ = await agent.post(body)
            assert status in {200, 400}, body


async def test_claude_kinds_of_request_are_told_apart(start: Start) -> None:
    async with start(CLAUDE, lambda prompt, number: "Ok.<|im_end|>") as (agent, _):
        await agent.post()
        agent.headers = {"X-Claude-Code-Agent-Id": "a1"}
        await agent.post()
        agent.headers = {}
        text = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n..."
        agent.history[-1]["content"] = [{"type": "text", "text": "Fix calc.py"}, {"type": "text", "text": text}]
        await agent.post()
        record = await agent.server.close_session(agent.session.id)
    kinds = sorted(s.kind for s in record.segments)
    assert kinds == [SegmentKind.COMPACTION, SegmentKind.MAIN, SegmentKind.SUBAGENT]


async def test_codex_kinds_of_request_are_told_apart(start: Start) -> None:
    async with start(CODEX, lambda prompt, number: "Ok.<|im_end|>") as (agent, _):
        await agent.post()
        agent.headers = {"x-openai-subagent": "collab_spawn", "thread-id": "t2"}
        await agent.post()
        agent.headers = {"x-codex-turn-metadata": '{"request_kind": "compaction"}'}
        agent.extra = {"tools": []}
        await agent.post()
        record = await agent.server.close_session(agent.session.id)
    kinds = sorted(s.kind for s in record.segments)
    assert kinds == [SegmentKind.COMPACTION, SegmentKind.MAIN, SegmentKind.SUBAGENT]


async def test_codex_custom_and_namespaced_tools_come_back_in_their_own_form(start: Start) -> None:
    patch = '<tool_call>{"name": "apply_patch", "arguments": {"input": "*** Begin\\n"}}</tool_call>'
    spawn = '<tool_call>{"name": "agents.spawn", "arguments": {"n":  1}}</tool_call>'
    async with start(CODEX, [patch + spawn + "<|im_end|>", "Done.<|im_end|>"]) as (agent, engine):
        agent.extra = {
            "tools": [
                {"type": "custom", "name": "apply_patch", "description": "d", "format": {"type": "grammar"}},
                {
                    "type": "namespace",
                    "name": "agents",
                    "tools": [{"type": "function", "name": "spawn", "parameters": {}}],
                },
                {"type": "web_search"},
            ]
        }
        custom, function = await agent.ask()
        assert (custom["type"], custom["name"], custom["input"]) == ("custom_tool_call", "apply_patch", "*** Begin\n")
        assert (function["type"], function["name"], function["namespace"]) == ("function_call", "spawn", "agents")
        assert function["arguments"] == '{"n":  1}'
        await agent.ask()
        assert len(engine.calls) == 2
        record = await agent.server.close_session(agent.session.id)
    assert (len(record.segments), record.forks) == (1, {})


async def test_codex_previous_response_id_is_refused_clearly(start: Start) -> None:
    async with start(CODEX) as (agent, _):
        agent.extra = {"previous_response_id": "resp_1"}
        status, _, raw = await agent.post()
        assert status == 400
        assert b"Send the whole history" in raw


async def test_a_busy_port_is_a_config_error_with_the_remedy(start: Start, renderer: TemplateRenderer) -> None:
    async with start(CLAUDE) as (agent, engine):
        again = AdapterServer(
            dialects=[AnthropicMessages()],
            engine=engine,
            renderer=renderer,
            sampling=Sampling(),
            port=agent.server.port,
        )
        with pytest.raises(ConfigError, match=rf"port: 127.0.0.1:{agent.server.port} is in use. Set"):
            await again.start()


async def test_sessions_of_one_server_do_not_see_each_other(start: Start) -> None:
    async with start(CLAUDE, lambda prompt, number: f"Reply {number}.<|im_end|>") as (agent, engine):
        other = Agent(CLAUDE, agent.http, agent.server, agent.server.open_session("rollout-2"))
        other.user("Fix calc.py")
        first, second = await agent.post(), await other.post()
        assert first[2] != second[2]
        assert len(engine.calls) == 2
        one = await agent.server.close_session(agent.session.id)
        two = await agent.server.close_session(other.session.id)
    assert (len(one.turns), len(two.turns)) == (1, 1)
    assert one.session_id != two.session_id


@BOTH
async def test_a_greedy_session_is_sampled_at_temperature_zero_and_the_others_are_not(start: Start, name: str) -> None:
    async with start(name) as (agent, engine):
        greedy = Agent(name, agent.http, agent.server, agent.server.open_session("baseline", greedy=True))
        greedy.user("Fix calc.py")
        await greedy.ask()
        await agent.ask()
        assert [sampling.temperature for _, sampling in engine.calls] == [0.0, 0.7]


async def test_results_that_the_program_marks_as_errors_are_counted_once(start: Start) -> None:
    script = [call("first"), call("second"), call("third"), "Done.<|im_end|>"]
    async with start(CLAUDE, script) as (agent, _):
        for failed in (True, False, True):
            blocks = await agent.ask()
            assert any(block["type"] == "tool_use" for block in blocks)
            agent.history[-1]["content"][0]["is_error"] = failed
        await agent.ask()
        record = await agent.server.close_session(agent.session.id)
    assert record.stats.tool_errors == 2

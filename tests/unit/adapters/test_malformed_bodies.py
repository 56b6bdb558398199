"""No body makes a 500 or a stall, ends the run that it does not belong to, or touches what another session has."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson
import pytest

from benchmarks.agents import WIRES, Call, Echo, InstantEngine, Results
from rl_agent.adapters.record import AdapterLimits
from rl_agent.adapters.server import AdapterServer
from rl_agent.tokens.turn import Sampling
from tests import malformed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rl_agent.adapters.session import Session
    from rl_agent.tokens.messages import Conversation
    from rl_agent.tokens.template_renderer import TemplateRenderer
    from rl_agent.tokens.turn import Int32

PATHS = {"claude_code": "/v1/messages", "codex": "/v1/responses", "chat": "/v1/chat/completions"}
STALL_S = 5.0
"""Processor time of a turn beside an attack; wall-clock time says nothing on a machine that does other things."""
SYSTEM = "You fix bugs."


class Always(InstantEngine):
    """Says the same to everybody."""

    async def generate(self, *args: Any, **kwargs: Any) -> Any:
        self.lines.append("Ok.<|im_end|>")
        return await super().generate(*args, **kwargs)


class Victim:
    """A well-behaved client of another session on the same server."""

    def __init__(self, http: aiohttp.ClientSession, url: str, session: Session, name: str) -> None:
        self.http, self.session, self.wire = http, session, WIRES[name]()
        self.url = url + session.base_path + PATHS[name]
        self.history: list[Any] = ["Fix calc.py"]
        self.slowest = 0.0

    async def turn(self) -> None:
        started = time.process_time()
        data = orjson.dumps(self.wire.body(SYSTEM, self.history, tools=True))
        async with self.http.post(self.url, data=data, headers={"x-api-key": self.session.token}) as response:
            assert response.status == 200
            echo = self.wire.read(orjson.loads(await response.read()))
        self.slowest = max(self.slowest, time.process_time() - started)
        self.history += [echo, "Go on."]


@asynccontextmanager
async def attacked(renderer: TemplateRenderer, name: str, **limits: Any) -> AsyncIterator[tuple[Any, Victim, Session]]:
    engine = Always(renderer)
    server = AdapterServer(
        dialects=[WIRES[name]().dialect],
        engine=engine,  # type: ignore[arg-type]
        renderer=renderer,
        sampling=Sampling(max_tokens=50),
        limits=AdapterLimits(**{"drain_s": 1.0, **limits}),
    )
    async with server, aiohttp.ClientSession() as http:
        url = f"http://127.0.0.1:{server.port}"
        session = server.open_session("attacker")
        victim = Victim(http, url, server.open_session("victim"), name)

        async def post(data: bytes, path: str = PATHS[name]) -> int:
            headers = {"x-api-key": session.token, "Content-Type": "application/json"}
            async with http.post(url + session.base_path + path, data=data, headers=headers) as response:
                raw = await response.read()
                if response.status != 200:
                    assert "error" in orjson.loads(raw), raw
                return response.status

        yield post, victim, session
        turns = len(victim.history) // 2
        record = await server.close_session(victim.session.id)
        assert (len(record.turns), len(record.segments), record.failure) == (turns, 1, None)
        assert record.trainable_share == 1.0
        assert victim.slowest < STALL_S


def good_body(name: str, command: str = "ls") -> dict[str, Any]:
    wire = WIRES[name]()
    call = Call("call_t00001_0", "Bash", f'{{"command": "{command}", "timeout": 5}}')
    items = [
        {
            "type": "message",
            "role": "assistant",
            "id": "msg_t00001",
            "content": [{"type": "output_text", "text": "I look."}],
        },
        {"type": "function_call", "id": "fc_t00001_0", "call_id": call.id, "name": call.name, "arguments": call.raw},
    ]
    document = {"content": [{"type": "thinking", "thinking": "hm", "signature": "rl_agent:t00001"}], "output": items}
    echo = Echo(document, "I look.", "hm", (call,))
    body = wire.body(SYSTEM, ["Fix calc.py", echo, Results(((call.id, "out"),), "note")], tools=True)
    return {**body, "stream": False, "max_tokens": 10, "instructions": "Be brief."}


async def _bodies(renderer: TemplateRenderer, name: str, count: int, seed: int) -> None:
    rng = random.Random(seed)
    async with attacked(renderer, name) as (post, victim, session):
        await victim.turn()
        assert await post(orjson.dumps(good_body(name))) == 200
        for number in range(count):
            data = malformed.body(rng, good_body(name))
            status = await post(data)
            assert status in {200, 400, 413}, (status, data)
            if number % 50 == 0:
                await victim.turn()
        assert session.failure is None
        await victim.turn()


@pytest.mark.parametrize("name", WIRES)
async def test_a_sample_of_malformed_bodies_is_refused_or_answered(renderer: TemplateRenderer, name: str) -> None:
    await _bodies(renderer, name, 120, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("seed", range(10, 14))
async def test_ten_thousand_malformed_bodies_are_refused_or_answered(
    renderer: TemplateRenderer, name: str, seed: int
) -> None:
    await _bodies(renderer, name, 1000, seed)


@pytest.mark.parametrize("name", WIRES)
async def test_huge_and_deep_bodies_are_refused_while_others_go_on(renderer: TemplateRenderer, name: str) -> None:
    good = orjson.dumps(good_body(name))
    deep = good_body(name) | {"tools": malformed.nested(200)}
    many = good_body(name) | {"metadata": [0] * 1_100_000}
    bodies = [(orjson.dumps(body), 200) for body in long_bodies(name)]
    bodies += [
        (b" " * 70_000_000, 413),
        (b'{"a": "' + b"x" * 70_000_000 + b'"}', 413),
        (b"[" * 100_000, 400),
        (b'{"a":' * 300_000, 413),
        (orjson.dumps(many), 413),
        (orjson.dumps(deep), 400),
        (good.replace(b"Fix calc.py", b"Fix it. " * 400_000), 200),
    ]
    async with attacked(renderer, name, max_context_tokens=10_000_000) as (post, victim, _):
        for data, status in bodies:
            async with asyncio.TaskGroup() as group:
                answer = group.create_task(post(data))
                group.create_task(victim.turn())
            assert answer.result() == status, (len(data), data[:30])


def long_bodies(name: str) -> list[dict[str, Any]]:
    """Whose messages' contents are short: many tools, a long echoed call, many empty messages."""
    good = good_body(name)
    tool = orjson.dumps(good["tools"][0]).replace(b"Runs", b"Runs it. " * 370)
    tools = [orjson.loads(tool.replace(b'"Bash"', b'"Bash%d"' % i)) for i in range(20)]
    words = WIRES[name]().body(SYSTEM, [""] * 20_000, tools=False)
    return [good | {"tools": tools}, good_body(name, "make x " * 150_000), words]


class LoopWatch:
    """The most processor time that the event loop's thread spends in one go; what other threads and programs do is not in it."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def watch(self) -> None:
        while True:
            started = time.thread_time()
            await asyncio.sleep(0.001)
            self.longest = max(self.longest, time.thread_time() - started)


@pytest.mark.parametrize("name", WIRES)
async def test_long_conversations_are_read_and_rendered_beside_the_loop(
    renderer: TemplateRenderer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, beside = type(renderer).render, []

    def render(self: TemplateRenderer, conversation: Conversation) -> Int32:
        beside.append(threading.current_thread() is not threading.main_thread())
        return honest(self, conversation)

    monkeypatch.setattr(type(renderer), "render", render)
    async with attacked(renderer, name, max_context_tokens=10_000_000) as (post, victim, _):
        await victim.turn()
        for body in long_bodies(name):
            data, watch = orjson.dumps(body), LoopWatch()
            watching = asyncio.create_task(watch.watch())
            assert await post(data) == 200
            watching.cancel()
            assert watch.longest < 0.03, data[:100]
    assert beside == [False, True, True, True]


async def test_a_conversation_that_cannot_be_shown_is_refused_and_does_not_end_the_run(
    renderer: TemplateRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with attacked(renderer, "claude_code") as (post, victim, session):
        good = {"messages": [{"role": "user", "content": "hi"}]}
        assert await post(orjson.dumps(good)) == 200
        monkeypatch.setattr(type(renderer), "render", _broken)
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            bad = {"messages": [{"role": "user", "content": "ho"}]}
            assert await post(orjson.dumps(bad), path) == 400
        assert session.failure is None
        assert await post(orjson.dumps(good)) == 200
        monkeypatch.undo()
        await victim.turn()


def _broken(*args: Any) -> Any:
    from rl_agent.errors import ConfigError

    raise ConfigError("the template refuses it")


@pytest.mark.parametrize("name", WIRES)
async def test_requests_beyond_the_allowed_number_are_told_to_come_back(renderer: TemplateRenderer, name: str) -> None:
    async with attacked(renderer, name, max_concurrent=2) as (post, victim, session):
        engine = session._engine
        gate = asyncio.Event()
        honest = engine.generate

        async def slow(*args: Any, **kwargs: Any) -> Any:
            await gate.wait()
            return await honest(*args, **kwargs)

        session._engine.generate = slow  # type: ignore[method-assign]
        bodies = [orjson.dumps(WIRES[name]().body(SYSTEM, [f"task {i}"], tools=True)) for i in range(5)]
        async with asyncio.TaskGroup() as group:
            posts = [group.create_task(post(data)) for data in bodies]
            for _ in range(1000):
                if sum(p.done() for p in posts) == 3:
                    break
                await asyncio.sleep(0.01)
            gate.set()
        statuses = sorted(p.result() for p in posts)
        assert statuses == [200, 200] + [529 if name == "claude_code" else 503] * 3
        assert session.stats.overloaded == 3
        await victim.turn()


@pytest.mark.parametrize("name", WIRES)
async def test_a_place_is_taken_before_the_body_is_read(renderer: TemplateRenderer, name: str) -> None:
    async with attacked(renderer, name, max_concurrent=2) as (_, victim, session):
        port = victim.url.partition("://127.0.0.1:")[2].partition("/")[0]
        head = f"POST {session.base_path}{PATHS[name]} HTTP/1.1\r\nHost: x\r\nx-api-key: {session.token}\r\n"
        half = (head + "Content-Length: 30000000\r\n\r\n{").encode()
        connections = [await asyncio.open_connection("127.0.0.1", int(port)) for _ in range(5)]
        try:
            for _, writer in connections[:2]:
                writer.write(half)
            for _ in range(1000):
                if session._slots == 2:
                    break
                await asyncio.sleep(0.01)
            for reader, writer in connections[2:]:
                writer.write(half)
                async with asyncio.timeout(30):  # for good, did it wait for the rest of the body
                    status = int((await reader.readline()).split()[1])
                assert status == (529 if name == "claude_code" else 503)
            await victim.turn()
        finally:
            for _, writer in connections:
                writer.close()
        assert session.stats.overloaded == 3

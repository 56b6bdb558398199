"""One session by itself: what a generation that ends at a bad moment leaves in its record."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.adapters import session as session_module
from rl_agent.adapters.anthropic_messages import AnthropicMessages
from rl_agent.adapters.base import ParsedRequest, Reply
from rl_agent.adapters.record import AdapterLimits
from rl_agent.adapters.server import AdapterServer
from rl_agent.tokens.fork import ChainKey
from rl_agent.tokens.messages import Message, Role
from rl_agent.tokens.template_renderer import TemplateRenderer
from rl_agent.tokens.turn import Sampling
from tests.scripted import ScriptedEngine, call, conversation, save_tokenizer, user

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rl_agent.adapters.session import Session
    from rl_agent.tokens.messages import Conversation

DIALECT = AnthropicMessages()
REQUEST = ParsedRequest(key=ChainKey(), conversation=conversation(user("u")), stream=False, model="m", max_tokens=None)


@asynccontextmanager
async def serving(
    renderer: TemplateRenderer, script: list[str], *, max_tokens: int = 100, **limits: Any
) -> AsyncIterator[tuple[AdapterServer, Session, ScriptedEngine]]:
    engine = ScriptedEngine(renderer, script)
    bounds = AdapterLimits(**{"drain_s": 1.0, **limits})
    async with AdapterServer(
        dialects=[DIALECT], engine=engine, renderer=renderer, sampling=Sampling(max_tokens=max_tokens), limits=bounds
    ) as server:
        yield server, server.open_session("r"), engine


async def test_a_cancel_that_comes_just_after_the_commit_counts_the_turn_once(
    renderer: TemplateRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = renderer.parse

    def slow(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.02)  # so long a piece that the gate lets the loop go round behind it
        return honest(*args, **kwargs)

    monkeypatch.setattr(renderer, "parse", slow)
    async with serving(renderer, [call("ls")], linger_s=30.0, max_turns=1) as (server, session, engine):
        engine.gate = asyncio.Event()
        async with session.ask(REQUEST, DIALECT):
            await engine.started.wait()
        ((fingerprint, flight),) = session._flights.items()
        assert flight.task is not None
        loop = asyncio.get_running_loop()

        def end_and_abandon() -> None:
            assert engine.gate is not None
            engine.gate.set()
            loop.call_soon(session._abandon, flight, fingerprint)

        loop.call_soon(end_and_abandon)
        await asyncio.wait([flight.task])
        assert flight.task.cancelled()
        sampled = len(session._graph.turns[0].generation.tokens)
        async with session.ask(REQUEST, DIALECT) as outcome:
            assert outcome.result() is session._replies[fingerprint]
        record = await server.close_session(session.id)
    assert (record.excluded, record.sampled_tokens) == ({"undelivered": sampled}, sampled)
    assert (record.stats.cancelled, record.stats.replayed, record.failure) == (0, 1, None)


async def test_a_failure_after_the_commit_counts_the_turn_once(
    renderer: TemplateRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**kwargs: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(session_module, "Reply", broken)
    async with serving(renderer, [call("ls")]) as (server, session, _):
        async with session.ask(REQUEST, DIALECT) as outcome:
            await outcome
        record = await server.close_session(session.id)
    assert record.excluded == {"undelivered": record.sampled_tokens}
    assert str(record.failure) == "a bug"


@pytest.mark.parametrize("words", [10, 3000])
async def test_a_long_reply_is_read_beside_the_loop(
    renderer: TemplateRenderer, monkeypatch: pytest.MonkeyPatch, words: int
) -> None:
    honest, threads = renderer.parse, []

    def parse(*args: Any, **kwargs: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return honest(*args, **kwargs)

    monkeypatch.setattr(renderer, "parse", parse)
    async with serving(renderer, ["a b" * words + call("ls")], max_tokens=20_000) as (server, session, _):
        async with session.ask(REQUEST, DIALECT) as outcome:
            reply = await outcome
        assert isinstance(reply, Reply)
        assert (threads, len(reply.calls)) == ([words == 10], 1)
        session.delivered(reply)
        record = await server.close_session(session.id)
    assert (record.trained_tokens, record.failure) == (record.sampled_tokens, None)


async def test_a_cancel_while_a_long_reply_is_read_loses_what_was_sampled(
    renderer: TemplateRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, go_on = threading.Event(), threading.Event()
    honest = renderer.parse

    def parse(*args: Any, **kwargs: Any) -> Any:
        reading.set()
        assert go_on.wait(30)
        return honest(*args, **kwargs)

    monkeypatch.setattr(renderer, "parse", parse)
    async with serving(renderer, ["a b" * 3000], max_tokens=20_000) as (server, session, _):
        async with session.ask(REQUEST, DIALECT):
            await asyncio.to_thread(reading.wait, 30)
        ((fingerprint, flight),) = session._flights.items()
        session._abandon(flight, fingerprint)
        assert flight.task is not None
        await asyncio.wait([flight.task])
        go_on.set()
        record = await server.close_session(session.id)
    assert record.excluded == {"cancelled": record.sampled_tokens}
    assert (record.turns, record.stats.cancelled) == ((), 1)


async def test_a_long_history_that_the_template_refuses_to_continue_is_rendered_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renderer = TemplateRenderer(save_tokenizer(tmp_path, drop_reasoning=True), keep_reasoning=False)
    honest, threads = renderer.render, []

    def render(asked: Conversation) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return honest(asked)

    monkeypatch.setattr(renderer, "render", render)
    history = [user("Look at this. " * 4000)]
    async with serving(renderer, ["<think>hm</think>Done.<|im_end|>"]) as (server, session, _):
        for _ in range(2):
            request = replace(REQUEST, conversation=conversation(*history))
            async with session.ask(request, DIALECT) as outcome:
                reply = await outcome
            assert isinstance(reply, Reply)
            session.delivered(reply)
            said = Message(role=Role.ASSISTANT, content=reply.text, reasoning=reply.reasoning, turn_id=reply.turn_id)
            history += [said, user("more")]
        record = await server.close_session(session.id)
    assert record.forks == {"template_refused": 1}
    assert threads == [False, False]

"""The real CLIs in sessions of 30 turns against the real adapter: the ledger balances, and no request is sampled twice."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import numpy as np
import pytest
from aiohttp import web

from rl_agent.adapters.build import build_adapter
from rl_agent.config.adapter import AdapterConfig
from rl_agent.harnesses.base import Budget, ExitReason, HarnessResult
from rl_agent.harnesses.claude_code import ClaudeCodeConfig
from rl_agent.harnesses.codex import CodexConfig
from rl_agent.tokens.segment import SegmentKind
from rl_agent.tokens.template_renderer import TemplateRenderer
from rl_agent.tokens.turn import Sampling
from rl_agent.workspace.workspace import prepare
from tests.local import calc_task, local_provider, needs_root
from tests.scripted import ScriptedEngine, save_tokenizer
from tests.serving import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from rl_agent.adapters.record import SessionRecord
    from rl_agent.config.harness import HarnessConfig
    from rl_agent.tokens.turn import Generation, Int32

pytestmark = [needs_root, pytest.mark.e2e, pytest.mark.slow]
TASK = calc_task()
NAMES = ("claude_code", "codex")
TURNS = 30
SUMMARY = "<analysis>all</analysis><summary>Nothing is left to do but go on.</summary><|im_end|>"
ASKS_FOR_SUMMARY = ("CRITICAL: Respond with TEXT ONLY", "CONTEXT CHECKPOINT COMPACTION")


class Policy(ScriptedEngine):
    """Counts its tokens; some of its answers wait until the client has come back for them."""

    def __init__(self, renderer: TemplateRenderer, script: Callable[[str, int], str]) -> None:
        super().__init__(renderer, script)
        self.sampled = 0
        self.slow: set[int] = set()
        self.waiting = asyncio.Event()
        self.come_back = asyncio.Event()

    async def generate(self, tokens: Int32, *args: Any, **kwargs: Any) -> Generation:
        if len(self.calls) in self.slow:
            self.waiting.set()
            async with asyncio.timeout(60):
                await self.come_back.wait()
        made = await super().generate(tokens, *args, **kwargs)
        self.sampled += len(made.tokens)
        return made


@dataclass
class Proxy:
    """Stands between CLI and adapter; breaks the n-th request in the way it was told."""

    target: int
    policy: Policy
    faults: dict[int, str] = field(default_factory=dict)
    requests: int = 0
    port: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        fault = None
        if request.method == "POST":
            self.requests += 1
            fault = self.faults.get(self.requests)
        if fault == "503":
            return web.json_response({"error": {"message": "later"}}, status=503)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in {"host", "content-length"}}
        url = f"http://127.0.0.1:{self.target}{request.path_qs}"
        if fault is None and self.policy.waiting.is_set():
            self.policy.come_back.set()
        async with aiohttp.ClientSession() as http:
            if fault == "drop":
                async with asyncio.TaskGroup() as tasks:
                    lost = tasks.create_task(_ask(http, request.method, url, body, headers))
                    await self.policy.waiting.wait()
                    lost.cancel()
                return _cut_off(request)
            status, kept, answer = await _ask(http, request.method, url, body, headers)
        if fault == "cut":
            broken = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await broken.prepare(request)
            await broken.write(answer[: answer.index(b"\n\n") + 20])
            return _cut_off(request)
        return web.Response(status=status, body=answer, headers=kept)


async def _ask(
    http: aiohttp.ClientSession, method: str, url: str, body: bytes, headers: dict[str, str]
) -> tuple[int, dict[str, str], bytes]:
    async with http.request(method, url, data=body, headers=headers) as response:
        kept = {k: v for k, v in response.headers.items() if k.lower() in {"content-type", "x-should-retry"}}
        return response.status, kept, await response.read()


def _cut_off(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@asynccontextmanager
async def proxied(target: int, policy: Policy, faults: dict[int, str]) -> AsyncIterator[Proxy]:
    proxy = Proxy(target, policy, faults)
    app = web.Application(client_max_size=1 << 28)
    app.router.add_route("*", "/{path:.*}", proxy.handle)
    async with serving(app, shutdown_timeout=0.1) as proxy.port:
        yield proxy


def harness(name: str, **changes: Any) -> HarnessConfig:
    if name == "claude_code":
        return ClaudeCodeConfig(**{"tools": ["Bash"], "system_prompt": "You fix bugs.", **changes})
    return CodexConfig(**{"tools": ["exec_command"], "system_prompt": "You fix bugs.", **changes})


def call(name: str, command: str) -> str:
    tool, key = ("Bash", "command") if name == "claude_code" else ("exec_command", "cmd")
    return f'<tool_call>{{"name": "{tool}", "arguments": {{"{key}":  "{command}"}}}}</tool_call>'


@dataclass
class Outcome:
    """What a session left."""

    result: HarnessResult
    record: SessionRecord
    policy: Policy
    proxy: Proxy

    def check(self) -> None:
        """The ledger balances; every generation had a prompt of its own; all of it trains."""
        record = self.record
        assert record.failure is None
        assert self.policy.cancelled == 0
        prompts = {prompt.tobytes() for prompt in self.policy.prompts}
        assert len(prompts) == len(self.policy.prompts), "a request was sampled twice"
        assert record.sampled_tokens == self.policy.sampled
        assert record.sampled_tokens == record.trained_tokens + sum(record.excluded.values())
        assert record.trained_tokens == sum(int(s.loss_mask.sum()) for s in record.segments)
        assert record.trainable_share == 1.0, record.excluded
        for segment in record.segments:
            assert np.isfinite(segment.rollout_logprobs).all()

    def kinds(self) -> list[SegmentKind]:
        return sorted(s.kind for s in self.record.segments)


async def session(
    tmp_path: Path,
    config: HarnessConfig,
    script: Callable[[str, int], str],
    *,
    faults: dict[int, str] | None = None,
    slow: set[int] | None = None,
    max_context_tokens: int = 10_000_000,
) -> Outcome:
    renderer = TemplateRenderer(save_tokenizer(tmp_path / "tokenizer"))
    policy = Policy(renderer, script)
    policy.slow = slow or set()
    adapter = build_adapter(
        AdapterConfig(linger_s=60.0),
        harness_dialect=config.dialect,
        engine=policy,  # type: ignore[arg-type]
        renderer=renderer,
        sampling=Sampling(max_tokens=4096),
        max_context_tokens=max_context_tokens,
        max_turns=None,
    )
    provider, cli = local_provider(tmp_path / "state"), config.build()
    async with adapter, provider.boot("host", assets=cli.find_assets(), lifetime_s=300) as sandbox:
        await prepare(sandbox, TASK, timeout_s=60)
        await cli.install(sandbox)
        async with proxied(adapter.port, policy, faults or {}) as proxy:
            opened = adapter.open_session("r")
            url = await sandbox.expose(proxy.port) + opened.base_path
            result = await cli.run(sandbox, task=TASK, base_url=url, token=opened.token, budget=Budget(time_s=200))
            record = await adapter.close_session(opened.id)
    return Outcome(result, record, policy, proxy)


def plain(name: str, *, output: int = 20, turns: int = TURNS) -> Callable[[str, int], str]:
    """`turns` replies, most with one call, some with two in parallel, some with reasoning; then a text."""

    def script(prompt: str, number: int) -> str:
        if any(text in prompt[-20_000:] for text in ASKS_FOR_SUMMARY):
            return SUMMARY
        if number >= turns - 1:
            return "Done.<|im_end|>"
        thought = f"<think>step {number}</think>" if number % 3 == 0 else ""
        calls = [call(name, f"printf '%{output}s' {number}{n}") for n in range(2 if number % 5 == 4 else 1)]
        return f"{thought}I look {number}.{''.join(calls)}<|im_end|>"

    return script


@pytest.mark.parametrize("name", NAMES)
async def test_thirty_turns_with_broken_streams_an_overload_and_a_lost_connection(tmp_path: Path, name: str) -> None:
    faults = {4: "cut", 8: "503", 12: "drop", 20: "cut", 25: "503"}
    found = await session(tmp_path, harness(name), plain(name), faults=faults, slow={9})
    assert found.result.reason is ExitReason.FINISHED, found.result.stderr_tail
    found.check()
    assert len(found.policy.prompts) == TURNS
    assert found.proxy.requests == TURNS + len(faults)
    assert found.record.stats.replayed + found.record.stats.joined == 3
    assert (found.kinds(), found.record.forks) == ([SegmentKind.MAIN], {})


@pytest.mark.parametrize("name", NAMES)
async def test_a_session_that_the_cli_compacts(tmp_path: Path, name: str) -> None:
    cli = harness(name, compaction=20_000, max_context_tokens=65_536)
    found = await session(tmp_path, cli, plain(name, output=1500))
    assert found.result.reason is ExitReason.FINISHED, found.result.stderr_tail
    found.check()
    kinds = found.kinds()
    assert kinds.count(SegmentKind.COMPACTION) >= 1
    assert kinds.count(SegmentKind.MAIN) == kinds.count(SegmentKind.COMPACTION) + 1
    assert SegmentKind.SUBAGENT not in kinds


@pytest.mark.parametrize("name", NAMES)
async def test_a_full_context_ends_a_cli_that_may_not_compact(tmp_path: Path, name: str) -> None:
    found = await session(tmp_path, harness(name), plain(name, output=1500), max_context_tokens=25_000)
    found.check()
    assert found.result.reason is ExitReason.CLI_ERROR
    assert found.kinds() == [SegmentKind.MAIN]
    assert found.record.stats.context_full >= 1


async def test_claude_compacts_when_the_adapter_says_that_the_context_is_full(tmp_path: Path) -> None:
    cli = harness("claude_code", compaction=60_000, max_context_tokens=65_536)  # above what the adapter lets through
    found = await session(tmp_path, cli, plain("claude_code", output=1500), max_context_tokens=25_000)
    assert found.result.reason is ExitReason.FINISHED, found.result.stderr_tail
    found.check()
    assert found.record.stats.context_full >= 1
    assert SegmentKind.COMPACTION in found.kinds()


async def test_sub_agents_of_claudes_default_mode(tmp_path: Path) -> None:
    def script(prompt: str, number: int) -> str:
        del number
        said = prompt.count("<|im_start|>assistant") - 1
        if "You fix bugs." not in prompt[:2000]:
            return "Found.<|im_end|>" if said == 3 else call("claude_code", f"echo {said}") + "<|im_end|>"
        if said == 2:
            return "".join(_spawn(n) for n in range(3)) + "<|im_end|>"
        return "Done.<|im_end|>" if said == 12 else call("claude_code", f"echo main {said}") + "<|im_end|>"

    cli = harness("claude_code", bare=False, tools=["Bash", "Agent"])
    found = await session(tmp_path, cli, script)
    assert found.result.reason is ExitReason.FINISHED, found.result.stderr_tail
    found.check()
    assert found.kinds() == [SegmentKind.MAIN] + [SegmentKind.SUBAGENT] * 3
    assert len(found.policy.prompts) == 13 + 3 * 4
    assert found.record.forks == {}


def _spawn(number: int) -> str:
    arguments = (
        f'"description": "look {number}", "prompt": "SUBTASK {number}: look.", "subagent_type": "general-purpose"'
    )
    return f'<tool_call>{{"name": "Agent", "arguments": {{{arguments}}}}}</tool_call>'

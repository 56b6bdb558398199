"""What the adapter costs: time of a turn by length of history, turns a second of many sessions, stalls of its event loop.

    .venv/bin/python -m benchmarks.adapter --sessions 64 --json docs/results/adapter.json

Client and engine are processes of their own; the engine answers at once, and a vocabulary of Qwen's size is used. Bounds: a turn
at 5k, 40k and 120k tokens of history takes at most 3, 6 and 12 ms (median); 64 sessions growing to 16k tokens make at least
250 turns a second, and the loop stands still for at most 50 ms. Exit code 1 if one is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import numpy as np
import orjson
from aiohttp import web

from benchmarks.agents import WORDS, Claude, Results
from rl_agent.adapters.anthropic_messages import AnthropicMessages
from rl_agent.adapters.record import AdapterLimits
from rl_agent.adapters.server import AdapterServer
from rl_agent.cluster.process import exempt_loaded_objects
from rl_agent.engine.vllm_client import VllmEngine
from rl_agent.tokens.turn import FinishReason, Generation, Sampling, VersionSpan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rl_agent.tokens.template_renderer import TemplateRenderer
    from rl_agent.tokens.turn import Int32

TURN_MS = {5_000: 3.0, 40_000: 6.0, 120_000: 12.0}
TURNS_PER_SECOND = 250.0
STALL_MS = 50.0
LINE = (
    "<think>the first argument is wrong</think>I look at the file.\n"
    '<tool_call>{"name": "Bash", "arguments": {"command": "cat calc.py"}}</tool_call><|im_end|>'
)


class Instant:
    """An engine in this process that takes no time."""

    def __init__(self, tokens: Int32) -> None:
        self._made = _generation(tokens)

    async def generate(self, tokens: Int32, sampling: Sampling, *, request_id: str, priority: int = 0) -> Generation:
        """The same reply each time."""
        del tokens, sampling, request_id, priority
        return self._made


def _generation(tokens: Int32) -> Generation:
    logprobs = np.full(len(tokens), -0.5, dtype=np.float32)
    span = VersionSpan(version=1, start=0, end=len(tokens))
    return Generation(tokens=tokens, logprobs=logprobs, finish_reason=FinishReason.STOP, spans=(span,))


class Client:
    """One agent in the client's process."""

    def __init__(self, http: aiohttp.ClientSession, url: str, token: str, number: int) -> None:
        self._http, self._url, self._token = http, url, token
        self._wire = Claude()
        self._history: list[Any] = [f"Fix calc.py, please. Number {number}."]

    async def turn(self, words: int) -> tuple[float, int]:
        """(seconds from the request's first byte to the answer's last, tokens of the prompt)."""
        data = orjson.dumps(self._wire.body("You fix bugs.", self._history, tools=True))
        started = time.perf_counter()
        async with self._http.post(self._url, data=data, headers={"x-api-key": self._token}) as response:
            raw = await response.read()
        seconds = time.perf_counter() - started
        document = orjson.loads(raw)
        echo = self._wire.read(document)
        text = " ".join(WORDS[(len(self._history) + i) % len(WORDS)] for i in range(words))
        self._history += [echo, Results(tuple((c.id, text) for c in echo.calls))]
        return seconds, document["usage"]["input_tokens"]


async def client_process(task: dict[str, Any]) -> dict[str, Any]:
    """What the client's process does and prints."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=600)) as http:
        clients = [Client(http, url, token, n) for n, (url, token) in enumerate(task["sessions"])]
        if task["history"]:
            (client,) = clients
            tokens = 0
            while tokens < task["history"]:
                _, tokens = await client.turn(min(1500, task["history"] // 4))
            return {"seconds": [(await client.turn(20))[0] for _ in range(15)]}

        async def run(one: Client) -> int:
            tokens = 0
            for _ in range(task["turns"]):
                _, tokens = await one.turn(task["words"])
            return tokens

        started = time.perf_counter()
        last = await asyncio.gather(*(run(c) for c in clients))
        return {"seconds": time.perf_counter() - started, "tokens": statistics.median(last)}


async def engine_process(tokens: list[int]) -> None:
    """Speaks as much of vLLM's API as the client of it needs; prints its port."""
    entries = [{"token_id": token, "logprob": -0.5} for token in tokens]
    versions = [{"version": "1", "start": 0, "end": len(tokens)}]
    choice = {"token_ids": tokens, "logprobs": {"content": entries}, "finish_reason": "stop"}
    answer = orjson.dumps({"choices": [choice | {"weight_versions": versions}], "usage": {}})

    async def handle(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=answer, content_type="application/json")

    app = web.Application(client_max_size=1 << 28)
    app.router.add_post("/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


@asynccontextmanager
async def engine(tokens: list[int]) -> AsyncIterator[str]:
    """The engine's process; its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--role", "engine", "--task", json.dumps(tokens), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.kill()
        await process.wait()


async def drive(task: dict[str, Any]) -> dict[str, Any]:
    """Run the client's process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--role", "client", "--task", json.dumps(task), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise SystemExit("the client's process failed")
    found: dict[str, Any] = json.loads(out)
    return found


def _server(renderer: TemplateRenderer, inner: Any) -> AdapterServer:
    return AdapterServer(
        dialects=[AnthropicMessages()],
        engine=inner,
        renderer=renderer,
        sampling=Sampling(max_tokens=8192),
        limits=AdapterLimits(max_context_tokens=10_000_000),
    )


def _open(server: AdapterServer, count: int) -> list[tuple[str, str]]:
    opened = [server.open_session(f"r{n}") for n in range(count)]
    return [(f"http://127.0.0.1:{server.port}{s.base_path}/v1/messages", s.token) for s in opened]


async def turn_ms(renderer: TemplateRenderer, history: int, repeats: int) -> float:
    """Median time of a turn after `history` tokens."""
    medians = []
    for _ in range(repeats):
        async with _server(renderer, Instant(renderer.tokens(LINE))) as server:
            found = await drive({"sessions": _open(server, 1), "history": history})
        medians.append(statistics.median(found["seconds"]) * 1000)
    return statistics.median(medians)


async def throughput(renderer: TemplateRenderer, sessions: int, turns: int, words: int) -> dict[str, float]:
    """Turns a second of many sessions, and the longest stall of the adapter's loop."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.002)
            longest = max(longest, time.perf_counter() - before - 0.002)

    async with (
        engine(renderer.tokens(LINE).tolist()) as url,
        VllmEngine(url=url, request_timeout_s=600, probe_tolerance=1.0) as inner,
        _server(renderer, inner) as server,
        asyncio.TaskGroup() as tasks,
    ):
        addresses = _open(server, sessions)
        watcher = tasks.create_task(watch())
        found = await drive({"sessions": addresses, "history": 0, "turns": turns, "words": words})
        watcher.cancel()
    return {
        "turns_per_second": sessions * turns / found["seconds"],
        "tokens": found["tokens"],
        "stall_ms": longest * 1000,
    }


async def measure(sessions: int, repeats: int, tokenizer: Path | None) -> dict[str, Any]:
    """Everything that is printed."""
    from benchmarks.vocabulary import qwen_size_renderer  # noqa: PLC0415 (slow to import, and client and engine never need it)

    with tempfile.TemporaryDirectory() as temporary:
        renderer = qwen_size_renderer(Path(temporary), tokenizer)
        exempt_loaded_objects()  # as a rollout worker does
        turns = {str(size): round(await turn_ms(renderer, size, repeats), 2) for size in TURN_MS}
        many = [await throughput(renderer, sessions, turns=20, words=720) for _ in range(repeats)]
    return {
        "turn_ms_p50": turns,
        f"turns_per_second_{sessions}": round(statistics.median(m["turns_per_second"] for m in many), 1),
        "loop_stall_ms_max": round(statistics.median(m["stall_ms"] for m in many), 1),
        "last_prompt_tokens": many[0]["tokens"],
    }


def fine(found: dict[str, Any], sessions: int) -> bool:
    """Whether all bounds hold; they are stated for 64 sessions."""
    turns = all(found["turn_ms_p50"][str(size)] <= bound for size, bound in TURN_MS.items())
    if sessions != 64:
        return turns
    return turns and found["turns_per_second_64"] >= TURNS_PER_SECOND and found["loop_stall_ms_max"] <= STALL_MS


def main() -> None:
    """Print the figures, or play a role in another process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer folder instead of the built one")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--role", choices=["engine", "client"], help=argparse.SUPPRESS)
    parser.add_argument("--task", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role == "engine":
        asyncio.run(engine_process(arguments.task))
        return
    if arguments.role == "client":
        print(json.dumps(asyncio.run(client_process(arguments.task))))
        return
    found = asyncio.run(measure(arguments.sessions, arguments.repeats, arguments.tokenizer))
    print(json.dumps(found, indent=2))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    raise SystemExit(0 if fine(found, arguments.sessions) else 1)


if __name__ == "__main__":
    main()

"""A scripted server that speaks both CLIs' protocols: a list of shell commands as tool calls, then a final text."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.serving import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


Command = str | tuple[str, dict[str, Any]] | None


class Stub:
    """Records requests; answers the n-th with the n-th command, then with `Done.`; a `silent` one never answers.

    A command is one of the shell, or a pair of any tool's name and input (for Claude Code), or None for `Done.`.
    """

    def __init__(self, commands: Sequence[Command], *, silent: bool = False, status: int = 200) -> None:
        self.commands = commands
        self.silent = silent
        self.status = status
        self.requests: list[dict[str, Any]] = []
        self.port = 0
        self._sessions: dict[str, int] = {}

    def take_turn(self, session: str) -> Command:
        """The session's next command; None when there is none left."""
        turn = self._sessions.get(session, 0)
        self._sessions[session] = turn + 1
        return self.commands[turn] if turn < len(self.commands) else None

    async def handle(self, request: web.Request) -> web.Response:
        if request.method != "POST":
            return web.Response()
        body = await request.json()
        self.requests.append({"path": request.path, "headers": dict(request.headers), "body": body})
        if self.silent:
            await asyncio.sleep(3600)
        if self.status != 200:
            return web.json_response(
                {"error": {"message": "no"}}, status=self.status, headers={"x-should-retry": "false"}
            )
        turn, command = len(self.requests), self.take_turn(request.path.split("/")[2])
        events = _responses(turn, command) if request.path.endswith("/responses") else _anthropic(turn, command)
        text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        return web.Response(text=text, content_type="text/event-stream")


@asynccontextmanager
async def serve(stub: Stub) -> AsyncIterator[Stub]:
    app = web.Application(client_max_size=1 << 28)
    app.router.add_route("*", "/{path:.*}", stub.handle)
    async with serving(app, shutdown_timeout=0.1) as stub.port:
        yield stub


def _anthropic(turn: int, command: Command) -> list[dict[str, Any]]:
    start = {"id": f"msg_{turn}", "type": "message", "role": "assistant", "model": "policy", "content": []}
    if command is None:
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": "Done."}
    else:
        name, arguments = ("Bash", {"command": command}) if isinstance(command, str) else command
        block = {"type": "tool_use", "id": f"toolu_{turn}", "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
    return [
        {"type": "message_start", "message": {**start, "usage": {"input_tokens": 10, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn" if command is None else "tool_use", "stop_sequence": None},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
    ]


def _responses(turn: int, command: Command) -> list[dict[str, Any]]:
    if command is None:
        item: dict[str, Any] = {"type": "message", "id": f"msg_{turn}", "role": "assistant"}
        item["content"] = [{"type": "output_text", "text": "Done."}]
    else:
        item = {"type": "function_call", "id": f"fc_{turn}", "call_id": f"call_{turn}", "name": "exec_command"}
        item["arguments"] = json.dumps({"cmd": command})
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    return [
        {"type": "response.created", "response": {"id": f"resp_{turn}"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": f"resp_{turn}", "usage": usage}},
    ]

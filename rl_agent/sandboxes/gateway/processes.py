"""envd's process service: start, connect, list, signal, input."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from rl_agent.errors import SandboxError
from rl_agent.sandboxes.base import SandboxLostError
from rl_agent.sandboxes.gateway.boxes import lost
from rl_agent.sandboxes.gateway.running import ExecProcess, Running
from rl_agent.sandboxes.gateway.wire import (
    Code,
    RpcError,
    decode,
    frame,
    frames,
    json_body,
    last_frame,
    open_stream,
    user_of,
)

if TYPE_CHECKING:
    from rl_agent.config.gateway import GatewayConfig
    from rl_agent.sandboxes.base import Process
    from rl_agent.sandboxes.gateway.boxes import Box, Boxes

KEEPALIVE_S: Final = 50.0
NO_TERMINALS: Final = "pseudo-terminals are not supported by this gateway"
SIGNALS: Final = {"SIGNAL_SIGTERM": 15, "SIGNAL_SIGKILL": 9, 15: 15, 9: 9}


class ProcessService:
    """Handlers of the process service."""

    def __init__(self, config: GatewayConfig, boxes: Boxes) -> None:
        self._config = config
        self._boxes = boxes
        self._limit = config.max_body_mb << 20

    def routes(self) -> list[web.RouteDef]:
        """Return the protocol's routes."""
        service = "/process.Process/"
        return [
            web.post(service + "Start", self.start),
            web.post(service + "Connect", self.connect),
            web.post(service + "List", self.list),
            web.post(service + "SendSignal", self.send_signal),
            web.post(service + "SendInput", self.send_input),
            web.post(service + "CloseStdin", self.close_stdin),
            web.post(service + "StreamInput", self.stream_input),
            web.post(service + "Update", self.update),
        ]

    async def start(self, request: web.Request) -> web.StreamResponse:
        """Start a process and stream its events. It keeps running if the client disconnects."""
        box = self._boxes.of(request)
        message = await _only(request, self._limit)
        if "pty" in message:
            return await _refuse(request, RpcError(Code.UNIMPLEMENTED, NO_TERMINALS))
        try:
            process, config = await self._spawn(box, message, user_of(request, self._config.default_user))
        except SandboxLostError as error:
            raise lost(box, error) from error
        except SandboxError as error:
            return await _refuse(request, RpcError(Code.INVALID_ARGUMENT, str(error)))
        running = Running(process, config=config, tag=message.get("tag"))
        if milliseconds := request.headers.get("Connect-Timeout-Ms"):
            running.kill_after(float(milliseconds) / 1000)
        return await _stream(request, running, lambda: box.run(running))

    async def _spawn(self, box: Box, message: dict[str, Any], user: str) -> tuple[Process, dict[str, Any]]:
        config = message.get("process") or {}
        argv = [str(config.get("cmd") or ""), *(str(word) for word in config.get("args") or [])]
        if not argv[0]:
            raise RpcError(Code.INVALID_ARGUMENT, "process.cmd is missing")
        env = {**box.order.env, **{str(k): str(v) for k, v in (config.get("envs") or {}).items()}}
        options: dict[str, Any] = {"user": user, "env": env, "cwd": config.get("cwd") or None}
        start = getattr(box.sandbox, "start", None)
        if start is not None:
            process = await start(argv, **options, stdin=bool(message.get("stdin", True)))
        else:
            process = ExecProcess(box.sandbox, argv, **options, lifetime_s=self._config.max_lifetime_s)
        return process, config

    async def connect(self, request: web.Request) -> web.StreamResponse:
        """Stream the further events of a running process."""
        box = self._boxes.of(request)
        try:
            running = _selected(box, await _only(request, self._limit))
        except RpcError as error:
            return await _refuse(request, error)
        return await _stream(request, running, lambda: None)

    async def list(self, request: web.Request) -> web.Response:
        """Return the running processes of the box."""
        box = self._boxes.of(request)
        shown = [
            {"pid": pid, "config": dict(running.config), **({"tag": running.tag} if running.tag else {})}
            for pid, running in box.processes.items()
        ]
        return web.json_response({"processes": shown})

    async def send_signal(self, request: web.Request) -> web.Response:
        """Send SIGTERM to the process, or SIGKILL to its whole tree."""
        box = self._boxes.of(request)
        message = await json_body(request)
        running = _selected(box, message)
        number = SIGNALS.get(message.get("signal", ""))
        if number is None:
            raise RpcError(Code.INVALID_ARGUMENT, f"signal {message.get('signal')!r} is not supported")
        if number == SIGNALS["SIGNAL_SIGKILL"]:
            running.process.kill()
        else:
            running.process.signal(number)
        return web.json_response({})

    async def send_input(self, request: web.Request) -> web.Response:
        """Write to stdin."""
        box = self._boxes.of(request)
        message = await json_body(request)
        await _feed(_selected(box, message), message)
        return web.json_response({})

    async def close_stdin(self, request: web.Request) -> web.Response:
        """Close stdin."""
        box = self._boxes.of(request)
        _selected(box, await json_body(request)).process.close_stdin()
        return web.json_response({})

    async def stream_input(self, request: web.Request) -> web.StreamResponse:
        """Write a stream of inputs to stdin."""
        box = self._boxes.of(request)
        running: Running | None = None
        try:
            async for message in frames(request.content, self._limit):
                if "start" in message:
                    running = _selected(box, message["start"])
                elif "data" in message:
                    await _feed(running, message["data"])
        except RpcError as error:
            return await _refuse(request, error)
        response = await open_stream(request)
        await response.write(frame({}) + last_frame())
        return response

    async def update(self, request: web.Request) -> web.Response:
        """Refuse to resize a terminal."""
        self._boxes.of(request)
        raise RpcError(Code.UNIMPLEMENTED, NO_TERMINALS)


async def _only(request: web.Request, limit: int) -> dict[str, Any]:
    """Return the only message of a server-streaming call."""
    try:
        async for message in frames(request.content, limit):
            return message
    except asyncio.IncompleteReadError:
        raise RpcError(Code.INVALID_ARGUMENT, "the message is incomplete") from None
    raise RpcError(Code.INVALID_ARGUMENT, "the message is missing")


def _selected(box: Box, message: dict[str, Any]) -> Running:
    selector = message.get("process") or {}
    for pid, running in box.processes.items():
        if selector.get("pid") == pid or (running.tag is not None and selector.get("tag") == running.tag):
            return running
    raise RpcError(Code.NOT_FOUND, f"process not found: {selector}")


async def _feed(running: Running | None, message: dict[str, Any]) -> None:
    if running is None:
        raise RpcError(Code.INVALID_ARGUMENT, "data before start")
    data = (message.get("input") or {}).get("stdin")
    if data is None:
        raise RpcError(Code.INVALID_ARGUMENT, "only stdin is supported")
    try:
        await running.process.write(decode(data))
    except BrokenPipeError as error:
        raise RpcError(Code.NOT_FOUND, f"the process's stdin is closed: {error}") from None


async def _refuse(request: web.Request, error: RpcError) -> web.StreamResponse:
    """Answer with a stream that contains only an error."""
    response = await open_stream(request)
    await response.write(last_frame(error))
    return response


async def _stream(request: web.Request, running: Running, begin: Any) -> web.StreamResponse:
    interval = float(request.headers.get("Keepalive-Ping-Interval") or KEEPALIVE_S)
    with running.subscribed() as subscriber:
        begin()  # after the subscription, so that no output is missed
        response = await open_stream(request)
        await response.write(frame({"event": {"start": {"pid": running.process.pid}}}))
        while True:
            try:
                async with asyncio.timeout(interval):
                    item = await subscriber.get()
            except TimeoutError:
                await response.write(frame({"event": {"keepalive": {}}}))
                continue
            if item is None or isinstance(item, RpcError):
                await response.write(last_frame(item))
                return response
            await response.write(frame({"event": item}))

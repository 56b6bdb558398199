"""The adapter's HTTP server: authenticates a session, lets a dialect parse the request, and sends the complete reply.

Replies are not streamed during sampling, because clients execute the finished blocks of a broken stream. A complete
generation is recorded, then sent with all its events at once. Until then a streaming client gets keep-alives. Nothing
is sent before the first keep-alive, so that an error still has its HTTP status.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import logging
import secrets
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import orjson
from aiohttp import web

from rl_agent.adapters import sse
from rl_agent.adapters.access_log import FailuresAndSlowOnes
from rl_agent.adapters.base import Action, Refusal, RefusalReason, RefusedError
from rl_agent.adapters.body import read_body
from rl_agent.adapters.gate import LoopGate
from rl_agent.adapters.record import AdapterLimits
from rl_agent.adapters.session import Session
from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rl_agent.adapters.base import Dialect, HttpReply, ParsedRequest, Reply
    from rl_agent.adapters.record import SessionRecord
    from rl_agent.engine.base import Sampler
    from rl_agent.tokens.renderer import Renderer
    from rl_agent.tokens.turn import Sampling

_LOG = logging.getLogger(__name__)
_IDLE_S = 3600.0
"""Time that an idle connection stays open. Closing earlier races with the client's next request."""
_BACKLOG = 1024
_THREAD_BYTES = 2_000_000
_THREAD_OBJECTS = 4_000
"""Bodies of this many bytes or objects are parsed in a thread. Only hostile bodies are as large."""


class AdapterServer:
    """Serves the sessions of many agent runs on one port. Async context manager that calls `start` and `close`."""

    def __init__(
        self,
        *,
        dialects: Sequence[Dialect],
        engine: Sampler,
        renderer: Renderer,
        sampling: Sampling,
        limits: AdapterLimits | None = None,
        bind_host: str = "127.0.0.1",
        port: int = 0,
        keepalive_s: float = 10.0,
    ) -> None:
        if not dialects:
            raise ConfigError("adapter.dialect: no dialect given. Set adapter.dialect, or leave it at `auto`.")
        self._dialects = tuple(dialects)
        self._engine = engine
        self._renderer = renderer
        self._sampling = sampling
        self._limits = limits or AdapterLimits()
        self._bind_host = bind_host
        self._asked_port = port
        self._keepalive_s = keepalive_s
        self._gate = LoopGate()
        self._sessions: dict[str, Session] = {}
        self._stack = AsyncExitStack()
        self._tasks: asyncio.TaskGroup | None = None
        self._port: int | None = None

    @property
    def port(self) -> int:
        """Return the port in use. Raises ConfigError before `start`."""
        if self._port is None:
            raise ConfigError("adapter: no port before the start. Call `start` first.")
        return self._port

    @property
    def open_sessions(self) -> int:
        """Return the number of open agent runs."""
        return len(self._sessions)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Start listening. Raises ConfigError if the port is in use. Call `close` in the same task."""
        app = web.Application(client_max_size=self._limits.max_body_bytes)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(
            app,
            handler_cancellation=True,
            access_log_class=FailuresAndSlowOnes,
            keepalive_timeout=_IDLE_S,
            shutdown_timeout=1.0,
        )
        async with AsyncExitStack() as stack:
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            site = web.TCPSite(runner, self._bind_host, self._asked_port, backlog=_BACKLOG)
            try:
                await site.start()
            except OSError as error:
                raise self._bind_error(error) from error
            # the task group is closed first, so that generations end before the server
            self._tasks = await stack.enter_async_context(asyncio.TaskGroup())
            self._port = int(runner.addresses[0][1])
            self._stack = stack.pop_all()

    async def close(self) -> None:
        """Close all sessions and stop listening."""
        try:
            for session_id in list(self._sessions):
                await self.close_session(session_id)
        finally:
            self._port = None
            await self._stack.aclose()

    def open_session(self, rollout_id: str, *, greedy: bool = False) -> Session:
        """Open a session with an unguessable id and token. `rollout_id` is for logs and the record.

        `greedy`: sample at temperature 0. The tokens of a greedy session must not train.
        """
        if self._tasks is None:
            raise ConfigError("adapter: not started. Enter its context first.")
        session = Session(
            session_id=secrets.token_urlsafe(18),
            token=secrets.token_urlsafe(32),
            rollout_id=rollout_id,
            engine=self._engine,
            renderer=self._renderer,
            sampling=replace(self._sampling, temperature=0.0) if greedy else self._sampling,
            limits=self._limits,
            tasks=self._tasks,
            gate=self._gate,
        )
        self._sessions[session.id] = session
        return session

    async def close_session(self, session_id: str) -> SessionRecord:
        """Close a session and return its record. Later requests to the session are refused. Raises LawError."""
        session = self._sessions.get(session_id)
        if session is None:
            raise KeyError(f"no open session {session_id}")
        try:
            return await session.close()
        finally:
            self._sessions.pop(session_id, None)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        session_id, path = _split(request.path)
        dialect = next((d for d in self._dialects if d.action(path)), self._dialects[0])
        session = self._sessions.get(session_id)
        if session is None or session.closing:
            return _http(dialect.error(Refusal(fault=RefusalReason.UNAUTHORIZED, message="unknown or closed session")))
        if request.method in {"GET", "HEAD"} and not path.endswith("/models"):
            # clients probe their base URL, some without a key
            return _json(b"{}")
        if not _has_token(request, session.token):
            return _http(dialect.error(Refusal(fault=RefusalReason.UNAUTHORIZED, message="wrong token")))
        if request.method == "GET":
            return _json(_MODELS)
        action = dialect.action(path) if request.method == "POST" else None
        if action is None:
            return _http(
                dialect.error(Refusal(fault=RefusalReason.NOT_FOUND, message=f"no route {request.method} {path}"))
            )
        try:
            with session.slot():
                return await self._answer(request, session, dialect, action)
        except RefusedError as error:
            return _http(dialect.error(error.refusal))

    async def _answer(
        self, request: web.Request, session: Session, dialect: Dialect, action: Action
    ) -> web.StreamResponse:
        """Return the response to a request. Raises RefusedError."""
        try:
            parsed = await self._read(request, dialect)
        except RefusedError as error:
            session.stats.malformed_requests += 1
            _LOG.warning("session of %s: refused a request: %s", session.rollout_id, error)
            raise
        if action is Action.COUNT_TOKENS:
            return _json(dialect.token_count(await session.count_tokens(parsed)))
        return await self._generate(request, session, dialect, parsed)

    async def _read(self, request: web.Request, dialect: Dialect) -> ParsedRequest:
        try:
            raw = await request.read()
        except web.HTTPRequestEntityTooLarge as error:
            limit = self._limits.max_body_bytes
            raise RefusedError(RefusalReason.TOO_LARGE, f"the body is over the limit of {limit} bytes") from error
        headers = {name.lower(): value for name, value in request.headers.items()}
        if len(raw) < _THREAD_BYTES and raw.count(b"{") < _THREAD_OBJECTS:
            async with self._gate.piece():
                return _parse(dialect, raw, headers)
        return await asyncio.to_thread(_parse, dialect, raw, headers)

    async def _generate(
        self, request: web.Request, session: Session, dialect: Dialect, parsed: ParsedRequest
    ) -> web.StreamResponse:
        async with session.ask(parsed, dialect) as outcome:
            if not parsed.stream:
                # a client that disconnects must not cancel the outcome for the others
                answer = await asyncio.shield(outcome)
                response: web.StreamResponse = (
                    _http(dialect.error(answer)) if isinstance(answer, Refusal) else _json(dialect.body(parsed, answer))
                )
                await _send(request, response)
            else:
                response, answer = await self._stream(request, dialect, parsed, outcome)
            if not isinstance(answer, Refusal):
                session.delivered(answer)
            return response

    async def _stream(
        self, request: web.Request, dialect: Dialect, parsed: ParsedRequest, outcome: asyncio.Future[Reply | Refusal]
    ) -> tuple[web.StreamResponse, Reply | Refusal]:
        """Send keep-alives until the outcome is ready, then send the whole outcome."""
        response: web.StreamResponse | None = None
        sent = 0
        while not outcome.done():
            await asyncio.wait([outcome], timeout=self._keepalive_s)
            if outcome.done():
                break
            if response is None:
                response = web.StreamResponse(headers=sse.HEADERS)
                await response.prepare(request)
            await response.write(dialect.keepalive(parsed, sent=sent))
            sent += 1
        answer = outcome.result()
        if response is not None:
            await response.write(
                dialect.error_event(answer, sent=sent)
                if isinstance(answer, Refusal)
                else dialect.events(parsed, answer, sent=sent)
            )
            await response.write_eof()
            return response, answer
        whole = (
            _http(dialect.error(answer))
            if isinstance(answer, Refusal)
            else web.Response(body=dialect.events(parsed, answer, sent=0), headers=sse.HEADERS)
        )
        await _send(request, whole)
        return whole, answer

    def _bind_error(self, error: OSError) -> ConfigError:
        where = f"{self._bind_host}:{self._asked_port}"
        if error.errno == errno.EADDRINUSE:
            return ConfigError(f"adapter.port: {where} is in use. Set adapter.port=0 to use a free port.")
        return ConfigError(f"adapter: cannot listen on {where}: {error}. Check adapter.bind_host and adapter.port.")


_MODELS = orjson.dumps(
    {
        "object": "list",
        "data": [
            {"id": "policy-model", "object": "model", "type": "model", "display_name": "policy-model", "created": 0}
        ],
        "has_more": False,
    }
)


def _parse(dialect: Dialect, raw: bytes, headers: Mapping[str, str]) -> ParsedRequest:
    try:
        return dialect.parse(read_body(raw), headers)
    except RefusedError:
        raise
    except Exception as error:
        _LOG.exception("%s: internal error while parsing a request", dialect.name)
        raise RefusedError(RefusalReason.MALFORMED, f"the request cannot be parsed: {type(error).__name__}") from error


def _split(path: str) -> tuple[str, str]:
    """Return (session id, path below the session's base). The id is empty for any other path."""
    parts = path.split("/", 3)
    if len(parts) < 3 or parts[1] != "s":
        return "", path
    return parts[2], "/" + parts[3] if len(parts) == 4 else "/"


def _has_token(request: web.Request, token: str) -> bool:
    """Compare the request's token in constant time."""
    given = request.headers.get("x-api-key") or request.headers.get("Authorization", "").removeprefix("Bearer ")
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode())


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _http(reply: HttpReply) -> web.Response:
    return web.Response(
        status=reply.status, body=reply.body, content_type="application/json", headers=dict(reply.headers)
    )


async def _send(request: web.Request, response: web.StreamResponse) -> None:
    """Send the response now, so that later code knows that it was sent."""
    await response.prepare(request)
    await response.write_eof()

"""Session of one agent run: its graph of turns, its generations in flight, its stored replies.

- Prompts are built one at a time in order of arrival. Generations of different requests (sub-agents) run concurrently.
- A request whose fingerprint already has a reply or a generation in flight is not sampled again (law 7).
- A generation is cancelled shortly after its last client disconnects, unless the client reconnects. Its sampled tokens
  are still counted.
- The client can always continue or end cleanly, whatever the policy samples: see `_visible`.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from rl_agent.adapters.base import Refusal, RefusalReason, RefusedError, Reply
from rl_agent.adapters.gate import LoopGate
from rl_agent.adapters.generate import Parts, generate_whole
from rl_agent.adapters.record import AdapterLimits, SessionRecord, SessionStats
from rl_agent.errors import LawError
from rl_agent.tokens.graph import SessionGraph
from rl_agent.tokens.ledger import ExclusionReason
from rl_agent.tokens.messages import ParsedReply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from rl_agent.adapters.base import Dialect, ParsedRequest
    from rl_agent.engine.base import Sampler
    from rl_agent.tokens.graph import Located, Prompt
    from rl_agent.tokens.renderer import Renderer
    from rl_agent.tokens.turn import Generation, Sampling

_THREAD_RENDERED: Final = 32_768
"""Renderings of at least this size run in a thread. They would block other sessions for more than about 5 ms."""
_THREAD_HASHED: Final = 400_000
"""Conversations of at least this size are hashed in a thread."""
_THREAD_TOKENS: Final = 2_048
"""Replies of at least this many tokens are parsed in a thread."""
_TURN_LIMIT_TEXT: Final = "(turn limit reached)"
_NO_REPLY_TEXT: Final = "(no reply)"
"""Replaces an empty reply, which clients would request again."""


@dataclass(slots=True, eq=False)
class _Flight:
    """A generation in flight and its waiting clients."""

    outcome: asyncio.Future[Reply | Refusal]
    task: asyncio.Task[None] | None = None
    waiters: int = 0
    farewell: asyncio.TimerHandle | None = None
    """Timer that cancels the generation if no client returns."""
    parts: Parts = field(default_factory=Parts)


class Session:
    """Session of one agent run. Created by `AdapterServer.open_session`."""

    def __init__(
        self,
        *,
        session_id: str,
        token: str,
        rollout_id: str,
        engine: Sampler,
        renderer: Renderer,
        sampling: Sampling,
        limits: AdapterLimits,
        tasks: asyncio.TaskGroup,
        gate: LoopGate | None = None,
    ) -> None:
        self.id = session_id
        self.token = token
        self.rollout_id = rollout_id
        self.stats = SessionStats()
        self._failed_calls: set[str] = set()
        self.failure: Exception | None = None
        self.closing = False
        self._engine = engine
        self._renderer = renderer
        self._sampling = replace(
            sampling, stop_token_ids=tuple(dict.fromkeys((*sampling.stop_token_ids, *renderer.stop_token_ids)))
        )
        self._limits = limits
        self._tasks = tasks
        self._gate = gate or LoopGate()
        self._graph = SessionGraph(renderer, max_segment_tokens=limits.max_segment_tokens)
        self._building = asyncio.Lock()
        self._replies: dict[bytes, Reply] = {}
        self._flights: dict[bytes, _Flight] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._launched = 0
        self._opened = time.monotonic()
        self._slots = 0
        self._requests = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def base_path(self) -> str:
        """Return the path at the end of the agent's base URL."""
        return f"/s/{self.id}"

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Reserve a slot for one request. Bodies take memory, so call it before reading one. Raises RefusedError."""
        if self._slots >= self._limits.max_concurrent:
            self.stats.overloaded += 1
            raise RefusedError(RefusalReason.OVERLOADED, "too many requests at once")
        self._slots += 1
        try:
            yield
        finally:
            self._slots -= 1

    @asynccontextmanager
    async def ask(self, request: ParsedRequest, dialect: Dialect) -> AsyncIterator[asyncio.Future[Reply | Refusal]]:
        """Yield the outcome of a request as a future. Leaving the context early abandons the request."""
        self.stats.requests += 1
        with self._counted():
            async with self._building:
                flight, fingerprint = await self._flight(request, dialect)
            flight.waiters += 1
            if flight.farewell is not None:
                flight.farewell.cancel()
                flight.farewell = None
            try:
                yield flight.outcome
            finally:
                flight.waiters -= 1
                if not flight.waiters and not flight.outcome.done():
                    self._wait_for_return(flight, fingerprint)

    async def count_tokens(self, request: ParsedRequest) -> int:
        """Return the prompt length of a request. Raises RefusedError."""
        with self._counted():
            async with self._building:
                try:
                    located = await self._locate(request)
                    return len((await self._prompt(located, request)).tokens)
                except Exception as error:  # no state has changed, so refusing the request is safe
                    raise RefusedError(
                        RefusalReason.MALFORMED, f"the conversation cannot be rendered: {error}"
                    ) from error

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count a request that `close` waits for."""
        self._requests += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._requests -= 1
            if not self._requests:
                self._idle.set()

    def delivered(self, reply: Reply) -> None:
        """Record that the client received the whole reply."""
        if self._graph.holds(reply.turn_id):
            self._graph.delivered(reply.turn_id)

    async def close(self) -> SessionRecord:
        """Wait for running requests, cancel the rest and return the record. Raises LawError."""
        self.closing = True
        try:
            async with asyncio.timeout(self._limits.drain_s):
                await self._idle.wait()
        except TimeoutError:
            pass
        for fingerprint, flight in list(self._flights.items()):
            self._abandon(flight, fingerprint)
        if self._running:  # cancelled generations still count their sampled tokens
            await asyncio.wait(self._running, timeout=self._limits.drain_s)
        return self._record()

    def _record(self) -> SessionRecord:
        segments, ledger = self._graph.export()
        return SessionRecord(
            session_id=self.id,
            rollout_id=self.rollout_id,
            segments=tuple(segments),
            turns=tuple(self._renderer.text(t.generation.tokens) for t in self._graph.turns),
            sampled_tokens=ledger.sampled,
            trained_tokens=ledger.trained,
            excluded={reason.value: count for reason, count in ledger.excluded.items() if count},
            forks={reason.value: count for reason, count in self._graph.forks.items()},
            stats=self.stats,
            failure=self.failure,
        )

    async def _flight(self, request: ParsedRequest, dialect: Dialect) -> tuple[_Flight, bytes]:
        """Return the generation for a request: a stored one, one in flight, or a new one."""
        located = await self._locate(request)
        fingerprint = located.fingerprint
        if (stored := self._replies.get(fingerprint)) is not None:
            self.stats.replayed += 1
            return _settled(stored), fingerprint
        if (flying := self._flights.get(fingerprint)) is not None:
            self.stats.joined += 1
            return flying, fingerprint
        if self.failure is not None or self.closing:
            return _settled(self._over()), fingerprint
        if self._limits.max_turns is not None and self._launched >= self._limits.max_turns:
            self.stats.turn_limit += 1
            return _settled(Reply(turn_id=f"limit{self.stats.turn_limit}", text=_TURN_LIMIT_TEXT)), fingerprint
        try:
            prompt = await self._prompt(located, request)
        except Exception as error:  # noqa: BLE001 (a conversation that cannot be rendered ends this run, not the others)
            if self._graph.turns:  # the template works, and the request may come from anyone who read the token
                self.stats.malformed_requests += 1
                return _settled(_unshowable(error)), fingerprint
            self.failure = error
            return _settled(self._over()), fingerprint
        room = self._limits.max_context_tokens - len(prompt.tokens)
        if room < 1:
            self.stats.context_full += 1
            return _settled(self._full(len(prompt.tokens))), fingerprint
        return self._launch(prompt, request, dialect, room), fingerprint

    def _launch(self, prompt: Prompt, request: ParsedRequest, dialect: Dialect, room: int) -> _Flight:
        limit = min(self._sampling.max_tokens, room, request.max_tokens or room)
        flight = _Flight(asyncio.get_running_loop().create_future())
        self._flights[prompt.located.fingerprint] = flight
        self._launched += 1
        sampling = replace(self._sampling, max_tokens=limit)
        flight.task = self._tasks.create_task(self._fly(flight, prompt, sampling, dialect))
        self._running.add(flight.task)
        flight.task.add_done_callback(self._running.discard)
        return flight

    async def _fly(self, flight: _Flight, prompt: Prompt, sampling: Sampling, dialect: Dialect) -> None:
        started = time.monotonic()
        outcome: Reply | Refusal
        try:
            generation = await generate_whole(
                self._engine,
                prompt.tokens,
                sampling,
                request_id=f"{self.id}-{prompt.turn_id}",
                parts=flight.parts,
            )
            if len(generation.tokens) < _THREAD_TOKENS:
                async with self._gate.piece():
                    outcome = self._commit(prompt, generation, self._read(prompt, generation), dialect, started)
            else:
                read = await asyncio.to_thread(self._read, prompt, generation)
                async with self._gate.piece():
                    outcome = self._commit(prompt, generation, read, dialect, started)
        except asyncio.CancelledError:
            if not self._graph.holds(prompt.turn_id):  # the cancellation may arrive after the commit
                self.stats.cancelled += 1
                self._launched -= 1
                self._graph.lose(prompt, flight.parts.sampled, ExclusionReason.CANCELLED)
            raise
        except Exception as error:  # noqa: BLE001 (stored in the record, which the caller checks; other runs continue)
            self.failure = error
            if not self._graph.holds(prompt.turn_id):
                self._graph.lose(prompt, flight.parts.sampled, ExclusionReason.UNUSABLE)
            outcome = self._over()
        finally:
            self.stats.generation_seconds += time.monotonic() - started
            self.stats.recomputed_tokens += flight.parts.recomputed
            if self._flights.get(prompt.located.fingerprint) is flight:
                del self._flights[prompt.located.fingerprint]
        if not flight.outcome.done():
            flight.outcome.set_result(outcome)

    def _read(self, prompt: Prompt, generation: Generation) -> tuple[ParsedReply, ParsedReply]:
        """Parse the policy's reply and build the client's reply. Changes no state, so it may run in a thread."""
        if not len(generation.tokens):
            raise LawError(f"turn {prompt.turn_id}: the engine sampled no token")
        parsed = self._renderer.parse(
            generation.tokens,
            generation.finish_reason,
            prompt_tokens=prompt.new_tokens,
            tools=prompt.located.conversation.tools,
        )
        return parsed, self._visible(parsed, generation)

    def _commit(
        self,
        prompt: Prompt,
        generation: Generation,
        read: tuple[ParsedReply, ParsedReply],
        dialect: Dialect,
        started: float,
    ) -> Reply:
        parsed, shown = read
        self._count(parsed, prompt, generation)
        calls = tuple(replace(c, id=dialect.call_id(prompt.turn_id, i)) for i, c in enumerate(shown.tool_calls))
        self._graph.commit(prompt, generation, replace(shown, tool_calls=calls), started_s=started - self._opened)
        reply = Reply(
            turn_id=prompt.turn_id,
            text=shown.content,
            reasoning=shown.reasoning,
            calls=calls,
            input_tokens=len(prompt.tokens),
            output_tokens=len(generation.tokens),
        )
        self._replies[prompt.located.fingerprint] = reply
        return reply

    def _visible(self, parsed: ParsedReply, generation: Generation) -> ParsedReply:
        """Return the client's reply. A truncated, invalid or empty reply becomes raw text, which ends the run."""
        usable = parsed.content or parsed.tool_calls
        if usable and not parsed.truncated and (not parsed.ill_formed or parsed.tool_calls):
            return parsed
        tokens = generation.tokens
        if int(tokens[-1]) in self._sampling.stop_token_ids:
            tokens = tokens[:-1]
        text = self._renderer.text(tokens).strip()
        return ParsedReply(content=text or _NO_REPLY_TEXT, ill_formed=parsed.ill_formed, truncated=parsed.truncated)

    def _count(self, parsed: ParsedReply, prompt: Prompt, generation: Generation) -> None:
        stats = self.stats
        stats.ill_formed += parsed.ill_formed
        stats.truncated += parsed.truncated
        stats.empty += not (parsed.content or parsed.reasoning or parsed.tool_calls)
        stats.tool_calls += len(parsed.tool_calls)
        self._failed_calls.update(
            m.tool_call_id for m in prompt.located.conversation.messages if m.failed and m.tool_call_id
        )
        stats.tool_errors = len(self._failed_calls)
        stats.prompt_tokens += len(prompt.tokens)
        stats.cached_tokens += generation.cached_tokens or 0
        if len({span.version for span in generation.spans if span.end > span.start}) > 1:
            stats.mixed_version_tokens += len(generation.tokens)

    async def _locate(self, request: ParsedRequest) -> Located:
        if request.size < _THREAD_HASHED:
            async with self._gate.piece():
                return self._graph.locate(request.key, request.conversation)
        return await asyncio.to_thread(self._graph.locate, request.key, request.conversation)

    async def _prompt(self, located: Located, request: ParsedRequest) -> Prompt:
        if located.continues and located.size < _THREAD_RENDERED:
            async with self._gate.piece():
                prompt = self._graph.continued(located)
            if prompt is not None:
                return prompt
        # the size of the whole conversation, which is rendered if the template cannot continue
        if request.size < _THREAD_RENDERED:
            async with self._gate.piece():
                return self._graph.continue_or_fork(located.key, located.conversation, located)
        return await asyncio.to_thread(self._graph.continue_or_fork, located.key, located.conversation, located)

    def _wait_for_return(self, flight: _Flight, fingerprint: bytes) -> None:
        """Cancel the generation after `linger_s`. A client whose connection broke repeats the request and joins."""
        if self.closing:
            self._abandon(flight, fingerprint)
            return
        loop = asyncio.get_running_loop()
        flight.farewell = loop.call_later(self._limits.linger_s, self._abandon, flight, fingerprint)

    def _abandon(self, flight: _Flight, fingerprint: bytes) -> None:
        """Cancel the generation. A later equal request starts a new one."""
        if flight.farewell is not None:
            flight.farewell.cancel()
            flight.farewell = None
        if self._flights.get(fingerprint) is flight:
            del self._flights[fingerprint]
        if flight.task is not None:
            flight.task.cancel()
        if not flight.outcome.done():
            flight.outcome.set_result(self._over())

    def _over(self) -> Refusal:
        cause = f": {self.failure}" if self.failure is not None else ""
        return Refusal(fault=RefusalReason.SESSION_OVER, message=f"this run is over{cause}")

    def _full(self, tokens: int) -> Refusal:
        return Refusal(
            fault=RefusalReason.CONTEXT_FULL,
            message="the context is full",
            prompt_tokens=tokens,
            max_tokens=self._limits.max_context_tokens - 1,
        )


def _unshowable(error: Exception) -> Refusal:
    return Refusal(fault=RefusalReason.MALFORMED, message=f"the conversation cannot be rendered: {error}")


def _settled(outcome: Reply | Refusal) -> _Flight:
    future: asyncio.Future[Reply | Refusal] = asyncio.get_running_loop().create_future()
    future.set_result(outcome)
    return _Flight(future)

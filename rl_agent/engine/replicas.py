"""Client for several engine replicas. A session stays on the replica that caches its prefix.

A new session goes to the replica with the fewest sessions. Addresses change while requests run; `renew` sets the
current ones. If a replica is lost, its requests move to another one, because an engine needs only a request's tokens.
If no replica is left, the request fails and its rollout is run again.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from rl_agent.engine.base import EngineLostError, session_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from rl_agent.engine.base import Engine, EngineServer
    from rl_agent.tokens.turn import Generation, Int32, Sampling

IDLE_S: Final = 900.0
"""Idle time after which a session has most likely ended. Its replica is then forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSet:
    """Addresses of an engine's replicas at one time."""

    addresses: tuple[str | None, ...]
    """Address per replica. None while the replica does not serve."""
    version: int | None = None
    """Weight version of all replicas. None before the first push."""


@dataclass(slots=True, eq=False)
class _Client:
    address: str
    engine: Engine
    stack: AsyncExitStack


@dataclass(slots=True)
class _Place:
    """Replica of a session, and the time of its last request."""

    replica: int
    asked: float


class Replicas:
    """Sampler on several replicas. Async context manager. See `engine.base.Sampler`."""

    def __init__(self, server: EngineServer, *, first: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        """`first`: preferred replica among equals. It differs per process, so that few sessions are spread as well."""
        self._server = server
        self._first = first
        self._clock = clock
        self._clients: dict[int, _Client] = {}
        self._places: OrderedDict[str, _Place] = OrderedDict()
        self._sessions: dict[int, int] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in list(self._clients):
            await self._close(number)

    async def renew(self, replicas: ReplicaSet) -> None:
        """Set the current addresses and weight version of the replicas."""
        for number, client in list(self._clients.items()):
            addresses = dict(enumerate(replicas.addresses))
            if addresses.get(number) != client.address:
                await self._close(number)
        for number, address in enumerate(replicas.addresses):
            if address is not None and number not in self._clients:
                stack = AsyncExitStack()
                engine = await stack.enter_async_context(self._server.client(address))
                self._clients[number] = _Client(address, engine, stack)
        if replicas.version is not None:
            for client in self._clients.values():
                client.engine.renew(replicas.version)

    async def generate(self, tokens: Int32, sampling: Sampling, *, request_id: str, priority: int = 0) -> Generation:
        """See `engine.base.Sampler`. Raises EngineError, or EngineLostError if no replica is left."""
        session = session_of(request_id)
        tried: set[int] = set()
        while True:
            number = self._choose(session, tried)
            client = self._clients[number]
            try:
                return await client.engine.generate(tokens, sampling, request_id=request_id, priority=priority)
            except EngineLostError:
                tried.add(number)
                if tried >= self._clients.keys():
                    raise

    def _choose(self, session: str, tried: set[int]) -> int:
        """Return the session's replica, or for a new or moved session the replica with the fewest sessions."""
        now = self._clock()
        while self._places and now - next(iter(self._places.values())).asked > IDLE_S:
            self._forget(next(iter(self._places)))
        place = self._places.get(session)
        if place is None or place.replica not in self._clients or place.replica in tried:
            free = self._clients.keys() - tried
            if not free:
                raise EngineLostError("no policy server is up. The rollout is run again after a server has started.")
            if place is not None:
                self._forget(session)
            replica = min(free, key=lambda number: (self._sessions.get(number, 0), number < self._first, number))
            self._sessions[replica] = self._sessions.get(replica, 0) + 1
            place = self._places[session] = _Place(replica, now)
        place.asked = now
        self._places.move_to_end(session)
        return place.replica

    def _forget(self, session: str) -> None:
        self._sessions[self._places.pop(session).replica] -= 1

    async def _close(self, number: int) -> None:
        await self._clients.pop(number).stack.aclose()

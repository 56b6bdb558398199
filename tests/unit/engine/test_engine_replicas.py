"""A session stays with its replica, new ones go where fewest are, and what is lost moves or fails cleanly."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rl_agent.engine.base import EngineLostError, session_of
from rl_agent.engine.replicas import IDLE_S, Replicas, ReplicaSet
from rl_agent.errors import EngineError
from rl_agent.tokens.turn import FinishReason, Generation, Sampling, VersionSpan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PROMPT = np.array([1, 2, 3], dtype=np.int32)


class Server:
    """Its engines answer with the number of their address as the token; an address in `dead` does not answer."""

    def __init__(self) -> None:
        self.dead: set[str] = set()
        self.open: list[str] = []
        self.versions: dict[str, int] = {}

    @asynccontextmanager
    async def client(self, address: str) -> AsyncIterator[Any]:
        self.open.append(address)
        yield Client(self, address)
        self.open.remove(address)


class Client:
    def __init__(self, server: Server, address: str) -> None:
        self.server = server
        self.address = address

    def renew(self, version: int) -> None:
        self.server.versions[self.address] = version

    async def generate(self, tokens: Any, sampling: Any, *, request_id: str, priority: int = 0) -> Generation:
        await asyncio.sleep(0)
        if self.address in self.server.dead:
            raise EngineLostError(f"{self.address} is gone")
        if request_id.startswith("bad"):
            raise EngineError("the request is no good")
        return Generation(
            tokens=np.array([int(self.address)], dtype=np.int32),
            logprobs=np.zeros(1, dtype=np.float32),
            finish_reason=FinishReason.STOP,
            spans=(VersionSpan(version=0, start=0, end=1),),
        )


async def ask(replicas: Replicas, session: str, turn: int = 0) -> str:
    return str((await replicas.generate(PROMPT, Sampling(), request_id=f"{session}-t{turn}-0")).tokens[0])


async def test_a_session_stays_and_new_ones_spread_evenly() -> None:
    async with Replicas(Server()) as replicas:  # type: ignore[arg-type]
        await replicas.renew(ReplicaSet(addresses=("10", "11", "12")))
        first = {f"s-{n}": await ask(replicas, f"s-{n}") for n in range(12)}
        assert Counter(first.values()) == {"10": 4, "11": 4, "12": 4}
        for turn in range(1, 4):
            assert {session: await ask(replicas, session, turn) for session in first} == first


async def test_each_process_begins_with_another_replica() -> None:
    begun = []
    for first in range(3):
        async with Replicas(Server(), first=first) as replicas:  # type: ignore[arg-type]
            await replicas.renew(ReplicaSet(addresses=("10", "11", "12")))
            begun.append([await ask(replicas, f"s{n}") for n in range(3)])
    assert [order[0] for order in begun] == ["10", "11", "12"]
    assert all(sorted(order) == ["10", "11", "12"] for order in begun)


async def test_a_session_whose_replica_is_lost_moves_and_stays_where_it_went() -> None:
    server = Server()
    async with Replicas(server) as replicas:  # type: ignore[arg-type]
        await replicas.renew(ReplicaSet(addresses=("10", "11")))
        assert await ask(replicas, "s") == "10"
        server.dead.add("10")
        assert await ask(replicas, "s") == "11"
        server.dead.clear()
        assert await ask(replicas, "s") == "11"


async def test_a_request_fails_cleanly_when_no_replica_is_left_and_a_bad_one_is_not_tried_elsewhere() -> None:
    server = Server()
    async with Replicas(server) as replicas:  # type: ignore[arg-type]
        with pytest.raises(EngineLostError, match="no policy server is up"):
            await ask(replicas, "s")
        await replicas.renew(ReplicaSet(addresses=("10", "11")))
        server.dead |= {"10", "11"}
        with pytest.raises(EngineLostError):
            await ask(replicas, "s")
        server.dead.clear()
        with pytest.raises(EngineError, match="no good"):
            await ask(replicas, "bad")


async def test_a_replica_that_comes_back_elsewhere_is_used_and_told_the_version() -> None:
    server = Server()
    async with Replicas(server) as replicas:  # type: ignore[arg-type]
        await replicas.renew(ReplicaSet(addresses=("10", "11"), version=3))
        await replicas.renew(ReplicaSet(addresses=(None, "11"), version=3))
        assert server.open == ["11"]
        await replicas.renew(ReplicaSet(addresses=("20", "11"), version=4))
        assert server.open == ["11", "20"]
        assert {await ask(replicas, f"s{n}") for n in range(4)} == {"20", "11"}
        assert server.versions == {"10": 3, "11": 4, "20": 4}
    assert server.open == []


async def test_places_of_ended_sessions_are_forgotten() -> None:
    now = [0.0]
    async with Replicas(Server(), clock=lambda: now[0]) as replicas:  # type: ignore[arg-type]
        await replicas.renew(ReplicaSet(addresses=("10", "11")))
        for n in range(100):
            await ask(replicas, f"s{n}")
        now[0] = IDLE_S + 1
        await ask(replicas, "new")
        assert len(replicas._places) == 1
        assert sum(replicas._sessions.values()) == 1


def test_the_session_is_all_but_turn_and_attempt() -> None:
    assert session_of("ab-c_-d-t12-0") == "ab-c_-d"

"""Contract of engines: token ids in; sampled token ids with log-probabilities and weight versions out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from rl_agent.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from rl_agent.tokens.turn import Generation, Int32, Sampling
    from rl_agent.weights.base import Probe, WeightUpdate


class PauseMode(StrEnum):
    """Handling of running requests during a pause. New requests wait."""

    WAIT = "wait"
    """Running requests finish first."""
    KEEP = "keep"
    """Running requests stop and continue after `resume`, possibly with new weights."""
    ABORT = "abort"
    """Running requests end with the tokens sampled so far."""


class EngineLostError(EngineError):
    """Raised if an engine is unreachable: the server or the connection to it is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """Load of an engine. None: the engine does not report it."""

    kv_cache_usage: float | None = None
    """Share of the KV cache in use, 0 to 1."""
    running: int | None = None
    """Number of running requests."""
    waiting: int | None = None
    """Number of queued requests."""


def total_load(loads: Iterable[EngineLoad]) -> EngineLoad:
    """Return the load of all replicas: the total of the requests, the maximum of the cache usage."""
    parts = list(loads)
    usages = [part.kv_cache_usage for part in parts if part.kv_cache_usage is not None]
    running = [part.running for part in parts if part.running is not None]
    waiting = [part.waiting for part in parts if part.waiting is not None]
    return EngineLoad(
        kv_cache_usage=max(usages) if usages else None,
        running=sum(running) if running else None,
        waiting=sum(waiting) if waiting else None,
    )


class Sampler(Protocol):
    """The part of an engine that an adapter needs: sampling from the policy."""

    async def generate(self, tokens: Int32, sampling: Sampling, *, request_id: str, priority: int = 0) -> Generation:
        """Continue `tokens` [T] int32. Cancelling the call aborts the request in the engine. Raises EngineError.

        `request_id`: `<session>-<turn>-<attempt>`; see `session_of`.
        """


class Engine(Sampler, Protocol):
    """Client of one engine."""

    async def pause(self, mode: PauseMode) -> None:
        """Stop generation."""

    async def resume(self) -> None:
        """Continue generation."""

    async def push(self, update: WeightUpdate, probe: Probe | None) -> float:
        """Install new weights: pause, update, reset the prefix cache, verify `probe`, resume.

        Returns the largest absolute difference on the probe (0 without a probe). Raises WeightPushError.
        """

    def renew(self, version: int) -> None:
        """Record that another client pushed weight version `version`."""

    async def hold(self) -> None:
        """Pause ahead of a push, for weights that are sent while they are received."""

    async def load(self) -> EngineLoad:
        """Return the current load. Raises EngineError."""

    async def sleep(self) -> None:
        """Free GPU memory until `wake`. No request may be running."""

    async def wake(self) -> None:
        """Reallocate GPU memory after `sleep`."""


class EngineServer(Protocol):
    """Server of an engine. Built by `EngineConfig.build` in the process that starts it and in its users' processes."""

    async def start(
        self,
        *,
        model_folder: Path,
        log: Path,
        weight_backend: str,
        max_context_tokens: int,
        node_address: str = "127.0.0.1",
        sleeps: bool = False,
    ) -> str:
        """Start the server and return its address once it responds. Raises ConfigError or EngineError.

        `node_address`: address of this machine for clients. `sleeps`: whether `Engine.sleep` will be used.
        """

    def client(self, address: str) -> AbstractAsyncContextManager[Engine]:
        """Return a client of the engine at `address`. Works in any process."""

    async def wait(self) -> None:
        """Wait until the server exits by itself, then raise EngineError."""

    async def stop(self) -> None:
        """Stop the server and all its child processes. Safe to call twice."""


def session_of(request_id: str) -> str:
    """Return the session of a request. Requests of a session share a prefix, which is cached in one replica."""
    return request_id.rsplit("-", 2)[0]

"""The contract of engines: token ids in, sampled token ids with log-probabilities and weight versions out."""

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
    """They finish first."""
    KEEP = "keep"
    """They stand still and go on after `resume`, perhaps with new weights."""
    ABORT = "abort"
    """They end with what they have."""


class EngineLostError(EngineError):
    """Nobody answers at an engine's address: the server is gone, or the way to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """Load of an engine. None: the engine does not report it."""

    kv_cache_usage: float | None = None
    """Share of the KV cache in use, 0 to 1."""
    running: int | None = None
    """Requests that it works on."""
    waiting: int | None = None
    """Requests in its queue."""


def total_load(loads: Iterable[EngineLoad]) -> EngineLoad:
    """Return the load of all replicas: the sum of requests, the fullest cache."""
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
    """Samples from the policy: what an adapter needs of an engine."""

    async def generate(self, tokens: Int32, sampling: Sampling, *, request_id: str, priority: int = 0) -> Generation:
        """Continue `tokens` [T] int32. Raises EngineError; cancelling the call aborts the request in the engine.

        `request_id`: `<session>-<turn>-<attempt>`; see `session_of`.
        """


class Engine(Sampler, Protocol):
    """A client of one engine."""

    async def pause(self, mode: PauseMode) -> None:
        """Stop generating."""

    async def resume(self) -> None:
        """Go on generating."""

    async def push(self, update: WeightUpdate, probe: Probe | None) -> float:
        """Take over new weights: pause, update, drop the prefix cache, verify `probe`, resume.

        Returns the largest absolute difference on the probe (0 without one). Raises WeightPushError.
        """

    def renew(self, version: int) -> None:
        """Somebody else pushed weights number `version`."""

    async def hold(self) -> None:
        """The pause of a push, ahead of it: for weights that are sent while they are received."""

    async def load(self) -> EngineLoad:
        """Return the current load. Raises EngineError."""

    async def sleep(self) -> None:
        """Give the accelerator's memory back until `wake`; no request may be running."""

    async def wake(self) -> None:
        """Take the memory again."""


class EngineServer(Protocol):
    """Runs an engine. Built by `EngineConfig.build`, where it is started and wherever it is used."""

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
        """Start it; returns its address once it answers. Raises ConfigError or EngineError.

        `node_address`: where clients find this machine. `sleeps`: whether `Engine.sleep` will be used.
        """

    def client(self, address: str) -> AbstractAsyncContextManager[Engine]:
        """A client of the engine at `address`, in any process."""

    async def wait(self) -> None:
        """Wait until it ends by itself, then raise EngineError."""

    async def stop(self) -> None:
        """End it and everything that it started; safe to call twice."""


def session_of(request_id: str) -> str:
    """The session that a request belongs to: requests of one share their prefixes, which are in one replica's cache."""
    return request_id.rsplit("-", 2)[0]

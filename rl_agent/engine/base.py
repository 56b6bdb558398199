"""The contract of engines: token ids in, sampled token ids with log-probabilities and weight versions out."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from rl_agent.tokens.turn import Generation, Int32, Sampling
    from rl_agent.weights.base import Probe, WeightUpdate


class PauseMode(StrEnum):
    """What a pause does with running requests (new ones wait)."""

    WAIT = "wait"
    """They finish first."""
    KEEP = "keep"
    """They stand still and go on after `resume`, perhaps with new weights."""
    ABORT = "abort"
    """They end with what they have."""


class Engine(Protocol):
    """Samples from the policy."""

    async def generate(self, tokens: Int32, sampling: Sampling, *, request_id: str, priority: int = 0) -> Generation:
        """Continue `tokens` [T] int32. Raises EngineError; cancelling the call aborts the request in the engine."""

    async def pause(self, mode: PauseMode) -> None:
        """Stop generating."""

    async def resume(self) -> None:
        """Go on generating."""

    async def push(self, update: WeightUpdate, probe: Probe | None) -> float:
        """Take over new weights: pause, update, drop the prefix cache, verify `probe`, resume.

        Returns the largest absolute difference on the probe (0 without one). Raises WeightPushError.
        """


class EngineServer(Protocol):
    """What runs an engine. Built from config (`engine._target_`) where it is started and wherever it is used."""

    async def start(self, *, model_folder: Path, log: Path, weight_backend: str, max_context_tokens: int) -> str:
        """Start it; returns its address once it answers. Raises ConfigError or EngineError."""

    def client(self, address: str) -> AbstractAsyncContextManager[Engine]:
        """A client of the engine at `address`, in any process."""

    async def wait(self) -> None:
        """Wait until it ends by itself, then raise EngineError."""

    async def stop(self) -> None:
        """End it and everything that it started; safe to call twice."""

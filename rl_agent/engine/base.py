"""The contract of engines: token ids in, sampled token ids with log-probabilities and weight versions out."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
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

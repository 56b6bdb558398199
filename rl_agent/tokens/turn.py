"""A turn: one generation, exactly as the engine gave it.

Array legend (all files): `T` tokens, `S` segments, `R` rollouts, `G` groups, `V` vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from rl_agent.errors import LawError

if TYPE_CHECKING:
    import numpy.typing as npt

    Int32 = npt.NDArray[np.int32]
    Float32 = npt.NDArray[np.float32]
    Bool = npt.NDArray[np.bool_]


class FinishReason(StrEnum):
    """Reason that a generation ended."""

    STOP = "stop"
    """A stop token; it is the last sampled token."""
    LENGTH = "length"
    """The token limit."""
    ABORT = "abort"
    """Stopped from outside; the tokens so far are valid samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSpan:
    """Sampled tokens `[start, end)` of one generation came from weights number `version`."""

    version: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Sampling parameters. The config sets them; a client can only lower `max_tokens` (law 3)."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    """-1: off."""
    min_p: float = 0.0
    max_tokens: int = 1024
    stop_token_ids: tuple[int, ...] = ()
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """An engine's answer. Refuses to exist with missing, NaN or miscounted log-probabilities or spans (law 4)."""

    tokens: Int32
    """[T] int32, sampled tokens, the stop token included."""
    logprobs: Float32
    """[T] float32, log-probability of each sampled token under the weights that sampled it, at temperature 1."""
    finish_reason: FinishReason
    spans: tuple[VersionSpan, ...]
    """Cover `[0, T)` without gap or overlap."""
    cached_tokens: int | None = None
    """Prompt tokens that the engine did not compute again; None where it does not say."""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        count = len(self.tokens)
        if self.tokens.dtype != np.int32 or self.logprobs.dtype != np.float32:
            raise LawError(
                f"generation arrays must be int32 and float32, got {self.tokens.dtype} and {self.logprobs.dtype}"
            )
        if len(self.logprobs) != count:
            raise LawError(f"{count} sampled tokens but {len(self.logprobs)} log-probabilities")
        if not np.isfinite(self.logprobs).all():
            raise LawError("a log-probability of a sampled token is not a finite number")
        position = 0
        for span in self.spans:
            if span.start != position or span.end < span.start:
                raise LawError(f"weight-version spans do not cover the sampled tokens: {self.spans}")
            position = span.end
        if position != count:
            raise LawError(f"weight-version spans cover {position} of {count} sampled tokens")

    def weight_versions(self) -> Int32:
        """[T] int32: the weight version of each sampled token."""
        versions = np.empty(len(self.tokens), dtype=np.int32)
        for span in self.spans:
            versions[span.start : span.end] = span.version
        return versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One generation of a chain: the tokens that are new in its prompt, and what was sampled after them."""

    turn_id: str
    """Unique in the session; tool-call ids of the reply contain it."""
    prompt_tokens: Int32
    """[T] int32, only what follows the chain's earlier tokens (a delta)."""
    generation: Generation
    started_s: float
    """Seconds since the session was opened."""

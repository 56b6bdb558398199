"""Turns: generations exactly as returned by the engine.

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
    """A stop token was sampled. It is the last token."""
    LENGTH = "length"
    """The token limit was reached."""
    ABORT = "abort"
    """The generation was stopped from outside. Its tokens are valid samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSpan:
    """Range `[start, end)` of a generation's tokens that was sampled with weight version `version`."""

    version: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Sampling parameters. The config sets them; a client can only lower `max_tokens` (law 3)."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    """-1: disabled."""
    min_p: float = 0.0
    max_tokens: int = 1024
    stop_token_ids: tuple[int, ...] = ()
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """An engine's response. Raises LawError for missing, NaN or miscounted log-probabilities or spans (law 4)."""

    tokens: Int32
    """[T] int32: sampled tokens, including the stop token."""
    logprobs: Float32
    """[T] float32: log-probability of each sampled token under the weights that sampled it, at temperature 1."""
    finish_reason: FinishReason
    spans: tuple[VersionSpan, ...]
    """Spans that cover `[0, T)` without gaps or overlaps."""
    cached_tokens: int | None = None
    """Prompt tokens that the engine took from its cache. None: not reported."""
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
            raise LawError("log-probability of a sampled token is not finite")
        position = 0
        for span in self.spans:
            if span.start != position or span.end < span.start:
                raise LawError(f"weight-version spans do not cover the sampled tokens: {self.spans}")
            position = span.end
        if position != count:
            raise LawError(f"weight-version spans cover {position} of {count} sampled tokens")

    def weight_versions(self) -> Int32:
        """Return the weight version of each sampled token as [T] int32."""
        versions = np.empty(len(self.tokens), dtype=np.int32)
        for span in self.spans:
            versions[span.start : span.end] = span.version
        return versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One generation of a chain: the new tokens of its prompt and the sampled tokens."""

    turn_id: str
    """Unique in the session. The ids of the reply's tool calls contain it."""
    prompt_tokens: Int32
    """[T] int32: only the tokens after the chain's earlier tokens."""
    generation: Generation
    started_s: float
    """Seconds from the opening of the session to the start of the turn."""

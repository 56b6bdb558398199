"""One whole generation: what an engine aborted in the middle is continued, so that a reply always ends by itself."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from rl_agent.errors import EngineError
from rl_agent.tokens.turn import FinishReason, Generation, VersionSpan

if TYPE_CHECKING:
    from rl_agent.engine.base import Sampler
    from rl_agent.tokens.turn import Int32, Sampling

_MAX_ABORTS: Final = 64
"""Aborts of one generation; weight pushes come minutes apart, so more than this is an engine that cannot work."""


@dataclass(slots=True)
class Parts:
    """The pieces of one generation so far; a caller that gives up still knows what was sampled."""

    pieces: list[Generation] = field(default_factory=list)
    recomputed: int = 0
    """Prompt tokens of all pieces but the first that the engine had to compute again."""

    @property
    def sampled(self) -> int:
        """Tokens sampled so far."""
        return sum(len(p.tokens) for p in self.pieces)

    def whole(self) -> Generation:
        """The pieces as one generation."""
        if len(self.pieces) == 1:
            return self.pieces[0]
        spans: list[VersionSpan] = []
        offset = 0
        for piece in self.pieces:
            spans += [VersionSpan(version=s.version, start=s.start + offset, end=s.end + offset) for s in piece.spans]
            offset += len(piece.tokens)
        return Generation(
            tokens=np.concatenate([p.tokens for p in self.pieces]),
            logprobs=np.concatenate([p.logprobs for p in self.pieces]),
            finish_reason=self.pieces[-1].finish_reason,
            spans=tuple(spans),
            cached_tokens=self.pieces[0].cached_tokens,
            seconds=sum(p.seconds for p in self.pieces),
        )


async def generate_whole(
    engine: Sampler, tokens: Int32, sampling: Sampling, *, request_id: str, parts: Parts
) -> Generation:
    """Sample until a stop token or the limit; pieces are put into `parts` as they come. Raises EngineError, LawError."""
    for attempt in range(_MAX_ABORTS):
        prompt = np.concatenate([tokens, *(p.tokens for p in parts.pieces)]) if parts.pieces else tokens
        piece = await engine.generate(
            prompt,
            replace(sampling, max_tokens=sampling.max_tokens - parts.sampled),
            request_id=f"{request_id}-{attempt}",
        )
        if attempt:
            parts.recomputed += len(prompt) - (piece.cached_tokens or 0)
        if piece.finish_reason is FinishReason.ABORT and parts.sampled + len(piece.tokens) >= sampling.max_tokens:
            piece = replace(piece, finish_reason=FinishReason.LENGTH)
        if len(piece.tokens) or piece.finish_reason is not FinishReason.ABORT:
            parts.pieces.append(piece)
        if piece.finish_reason is not FinishReason.ABORT:
            return parts.whole()
    raise EngineError(f"generation {request_id} was aborted {_MAX_ABORTS} times. Remedy: look at the engine's log.")

"""Complete generations: continues a generation that the engine aborted, so that a reply always ends by itself."""

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
"""Maximum aborts per generation. Weight pushes are minutes apart, so more aborts mean that the engine is broken."""


@dataclass(slots=True)
class Parts:
    """Pieces of one generation so far. They show a cancelled caller what was sampled."""

    pieces: list[Generation] = field(default_factory=list)
    recomputed: int = 0
    """Prompt tokens that the engine recomputed, over all pieces but the first."""

    @property
    def sampled(self) -> int:
        """Return the number of tokens sampled so far."""
        return sum(len(p.tokens) for p in self.pieces)

    def whole(self) -> Generation:
        """Return the pieces as one generation."""
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
    """Sample until a stop token or the limit. Appends each piece to `parts`. Raises EngineError, LawError."""
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
    raise EngineError(f"generation {request_id}: aborted {_MAX_ABORTS} times. Check the engine's log.")

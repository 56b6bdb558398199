"""Limits and record of a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rl_agent.tokens.segment import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterLimits:
    """Limits of a session and of each request."""

    max_turns: int | None = None
    """Maximum generations per session. The next request ends the run cleanly. None: no limit."""
    max_context_tokens: int = 96_000
    """Maximum length of prompt plus reply."""
    max_segment_tokens: int | None = None
    """Maximum length of a trained segment. Tokens beyond it are excluded. None: no limit."""
    max_body_bytes: int = 32 * 1024 * 1024
    max_concurrent: int = 64
    """Maximum concurrent requests per session, including requests whose bodies are still arriving."""
    linger_s: float = 1.0
    """Time that a generation continues after its client disconnects. Clients retry a broken request after half a second."""
    drain_s: float = 5.0
    """Time that closing a session waits for running requests before it cancels them."""


@dataclass(slots=True, kw_only=True)
class SessionStats:
    """Counters of a session."""

    requests: int = 0
    """Generation requests, including retries, without requests over the concurrency limit."""
    replayed: int = 0
    """Requests answered with a stored reply."""
    joined: int = 0
    """Requests that joined a generation in flight."""
    cancelled: int = 0
    """Generations cancelled because their clients disconnected or the session closed."""
    ill_formed: int = 0
    """Replies with an invalid tool call."""
    empty: int = 0
    truncated: int = 0
    """Replies truncated at the token limit."""
    tool_calls: int = 0
    tool_errors: int = 0
    """Calls whose results are marked as errors. Only Anthropic's protocol has this mark."""
    malformed_requests: int = 0
    context_full: int = 0
    turn_limit: int = 0
    """Requests after the last allowed turn."""
    overloaded: int = 0
    """Requests over the concurrency limit."""
    generation_seconds: float = 0.0
    prompt_tokens: int = 0
    """Sum over turns, as seen by the engine."""
    cached_tokens: int = 0
    """Prompt tokens from the engine's cache, as far as the engine reports them."""
    mixed_version_tokens: int = 0
    """Sampled tokens of turns that span more than one version of the weights."""
    recomputed_tokens: int = 0
    """Prompt and reply tokens recomputed after a weight push aborted the generation (`engine.update_mode`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """Record of a closed session."""

    session_id: str
    rollout_id: str
    segments: tuple[Segment, ...]
    turns: tuple[str, ...]
    """Text of each turn as sampled, including special tokens."""
    sampled_tokens: int
    trained_tokens: int
    excluded: Mapping[str, int]
    """Number of sampled tokens that do not train, by ExclusionReason."""
    forks: Mapping[str, int]
    """Number of forks by ForkReason."""
    stats: SessionStats
    failure: Exception | None
    """Error (EngineError, LawError, ConfigError, internal) that broke the session. Do not grade its rollout."""

    @property
    def trainable_share(self) -> float:
        """Return trained over sampled tokens, or 1 if nothing was sampled."""
        return self.trained_tokens / self.sampled_tokens if self.sampled_tokens else 1.0

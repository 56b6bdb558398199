"""Limits of a session, and its record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rl_agent.tokens.segment import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterLimits:
    """Bounds on a session and on one request."""

    max_turns: int | None = None
    """Generations of one session; the next request ends the run cleanly. None: no bound."""
    max_context_tokens: int = 96_000
    """Prompt and reply together."""
    max_segment_tokens: int | None = None
    """Longest segment that trains; tokens beyond it are excluded. None: no limit."""
    max_body_bytes: int = 32 * 1024 * 1024
    max_concurrent: int = 64
    """Requests of one session at a time, those included whose bodies still come; more are told to come back."""
    linger_s: float = 1.0
    """Time that a generation continues after its client disconnects. Clients retry a broken request after half a second."""
    drain_s: float = 5.0
    """Time that closing a session waits for running requests before it cancels them."""


@dataclass(slots=True, kw_only=True)
class SessionStats:
    """Counters of a session."""

    requests: int = 0
    """Generations asked for, retries included, those beyond the allowed number not."""
    replayed: int = 0
    """Answered with a stored reply."""
    joined: int = 0
    """Joined a generation in flight."""
    cancelled: int = 0
    """Generations that ended because their clients went away or the session was closed."""
    ill_formed: int = 0
    """Replies with a tool call that could not be read."""
    empty: int = 0
    truncated: int = 0
    """Replies cut by the token limit."""
    tool_calls: int = 0
    tool_errors: int = 0
    """Calls whose results came back marked as errors; only Anthropic's protocol has such a mark."""
    malformed_requests: int = 0
    context_full: int = 0
    turn_limit: int = 0
    """Requests after the last allowed turn."""
    overloaded: int = 0
    """Requests beyond the allowed number at a time."""
    generation_seconds: float = 0.0
    prompt_tokens: int = 0
    """Sum over turns, as the engine sees them."""
    cached_tokens: int = 0
    """Prompt tokens that the engine took from its cache, as far as it reports them."""
    mixed_version_tokens: int = 0
    """Sampled tokens of turns that more than one version of the weights has part in."""
    recomputed_tokens: int = 0
    """Prompt and reply tokens that the engine computed again, because a weight push had ended a generation (`engine.update_mode`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """Record of a closed session."""

    session_id: str
    rollout_id: str
    segments: tuple[Segment, ...]
    turns: tuple[str, ...]
    """The text of each turn as sampled, special tokens included."""
    sampled_tokens: int
    trained_tokens: int
    excluded: Mapping[str, int]
    """ExclusionReason -> sampled tokens that do not train."""
    forks: Mapping[str, int]
    """ForkReason -> count."""
    stats: SessionStats
    failure: Exception | None
    """Error that broke the session (EngineError, LawError, ConfigError, or an internal error). Its rollout must not be graded as usual."""

    @property
    def trainable_share(self) -> float:
        """Trained over sampled; 1 when nothing was sampled."""
        return self.trained_tokens / self.sampled_tokens if self.sampled_tokens else 1.0

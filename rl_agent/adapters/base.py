"""The contract of dialects: a vendor's HTTP API, turned into canonical requests and back. Pure functions of values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rl_agent.tokens.fork import ChainKey
    from rl_agent.tokens.messages import Conversation, ToolCall


class Action(StrEnum):
    """Action that a route requests."""

    GENERATE = "generate"
    COUNT_TOKENS = "count_tokens"


class RefusalReason(StrEnum):
    """Reason that a request gets an error instead of a reply."""

    MALFORMED = "malformed"
    """The body is not what the API takes."""
    UNAUTHORIZED = "unauthorized"
    """Unknown or closed session, or a wrong token."""
    NOT_FOUND = "not_found"
    TOO_LARGE = "too_large"
    """The body is over the limit."""
    CONTEXT_FULL = "context_full"
    """The prompt leaves no room for a reply."""
    OVERLOADED = "overloaded"
    """Too many requests of the session at once; the client tries again later."""
    SESSION_OVER = "session_over"
    """The run must end: the engine failed, or the session is being closed. Never retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An error as the session means it; the dialect words it."""

    fault: RefusalReason
    message: str
    prompt_tokens: int = 0
    """For CONTEXT_FULL."""
    max_tokens: int = 0
    """For CONTEXT_FULL: the most tokens that a prompt may have."""


class RefusedError(Exception):
    """A request that cannot be served, with the refusal to send."""

    def __init__(self, fault: RefusalReason, message: str) -> None:
        super().__init__(message)
        self.refusal = Refusal(fault=fault, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequest:
    """A request for a generation in canonical form. What the client asks for in sampling is not in it (law 3)."""

    key: ChainKey
    conversation: Conversation
    stream: bool
    model: str
    """The name that the client uses; only echoed."""
    max_tokens: int | None
    """The client's limit; it can only lower ours."""
    size: int = field(init=False)
    """Size of the conversation. It is measured where the request is parsed: in a thread for a large body."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.conversation.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Reply to the client for one turn. Every retry gets the same object."""

    turn_id: str
    text: str
    reasoning: str | None = None
    calls: tuple[ToolCall, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    """A whole HTTP answer."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Dialect(Protocol):
    """One vendor's API. Built from its dotted path with the one argument `drop_system`."""

    @property
    def name(self) -> str:
        """For logs and messages."""

    def action(self, path: str) -> Action | None:
        """Return the action of a POST to `path` (below the session's base), or None if the API has no such route."""

    def parse(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> ParsedRequest:
        """Read a request; header names are lower case. Raises RefusedError."""

    def call_id(self, turn_id: str, index: int) -> str:
        """The id of a turn's tool call; unique in the session and contains the turn's id."""

    def body(self, request: ParsedRequest, reply: Reply) -> bytes:
        """The reply as one JSON document."""

    def events(self, request: ParsedRequest, reply: Reply, *, sent: int) -> bytes:
        """The reply as server-sent events, complete; `sent` keep-alives went before."""

    def keepalive(self, request: ParsedRequest, *, sent: int) -> bytes:
        """An event that keeps the client waiting; `sent` went before."""

    def error(self, refusal: Refusal) -> HttpReply:
        """The refusal in the vendor's envelope, such that a client whose run must end does not retry."""

    def error_event(self, refusal: Refusal, *, sent: int) -> bytes:
        """Return the error as an event of a running stream."""

    def token_count(self, tokens: int) -> bytes:
        """The answer to COUNT_TOKENS."""

"""Contract of dialects: pure functions that translate a vendor's HTTP API to canonical requests and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rl_agent.tokens.fork import ChainKey
    from rl_agent.tokens.messages import Conversation, ToolCall


class Action(StrEnum):
    """Action requested by a route."""

    GENERATE = "generate"
    COUNT_TOKENS = "count_tokens"


class RefusalReason(StrEnum):
    """Reason for an error instead of a reply."""

    MALFORMED = "malformed"
    """The body is not a valid request of the API."""
    UNAUTHORIZED = "unauthorized"
    """Unknown or closed session, or a wrong token."""
    NOT_FOUND = "not_found"
    TOO_LARGE = "too_large"
    """The body exceeds the size limit."""
    CONTEXT_FULL = "context_full"
    """The prompt leaves no room for a reply."""
    OVERLOADED = "overloaded"
    """Too many concurrent requests in the session. The client retries later."""
    SESSION_OVER = "session_over"
    """The run must end: the engine failed, or the session is closing. Never retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Error of a request, before the dialect translates it to the vendor's format."""

    fault: RefusalReason
    message: str
    prompt_tokens: int = 0
    """Length of the prompt. Only for CONTEXT_FULL."""
    max_tokens: int = 0
    """Maximum length of a prompt. Only for CONTEXT_FULL."""


class RefusedError(Exception):
    """Raised for a request that cannot be served. Carries the refusal to send."""

    def __init__(self, fault: RefusalReason, message: str) -> None:
        super().__init__(message)
        self.refusal = Refusal(fault=fault, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequest:
    """Generation request in canonical form. The client's sampling parameters are left out (law 3)."""

    key: ChainKey
    conversation: Conversation
    stream: bool
    model: str
    """Model name that the client uses. Only echoed."""
    max_tokens: int | None
    """The client's token limit. It can only lower the configured limit."""
    size: int = field(init=False)
    """Size of the conversation. Computed with the parsing, which runs in a thread for a large body."""

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
    """A complete HTTP response."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Dialect(Protocol):
    """A vendor's API. Built from its dotted path with `drop_system` as the only argument."""

    @property
    def name(self) -> str:
        """Name for logs and messages."""

    def action(self, path: str) -> Action | None:
        """Return the action of a POST to `path` (below the session's base), or None if the API has no such route."""

    def parse(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> ParsedRequest:
        """Parse a request. Header names are lower case. Raises RefusedError."""

    def call_id(self, turn_id: str, index: int) -> str:
        """Return the id of a turn's tool call. It is unique in the session and contains the turn's id."""

    def body(self, request: ParsedRequest, reply: Reply) -> bytes:
        """Return the reply as one JSON document."""

    def events(self, request: ParsedRequest, reply: Reply, *, sent: int) -> bytes:
        """Return the complete reply as server-sent events. `sent`: number of keep-alives sent before."""

    def keepalive(self, request: ParsedRequest, *, sent: int) -> bytes:
        """Return an event that keeps the client waiting. `sent`: number of keep-alives sent before."""

    def error(self, refusal: Refusal) -> HttpReply:
        """Return the refusal in the vendor's error format. A client whose run must end does not retry."""

    def error_event(self, refusal: Refusal, *, sent: int) -> bytes:
        """Return the refusal as an event of a running stream."""

    def token_count(self, tokens: int) -> bytes:
        """Return the response to COUNT_TOKENS."""

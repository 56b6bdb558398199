"""Canonical messages: what every dialect is parsed into and every renderer reads.

Adapters turn a vendor's request into `Message`s; renderers turn `Message`s into token ids. Both meet only here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping

_ENTRY: Final = 200
"""Fixed cost of hashing and rendering a message, a call or a tool, in characters."""


class Role(StrEnum):
    """Role of a message."""

    SYSTEM = "system"
    """Instructions of the agent program; may also stand in the middle of a conversation."""
    USER = "user"
    """The task, and everything the agent program says in the user's name."""
    ASSISTANT = "assistant"
    """The policy."""
    TOOL = "tool"
    """The result of one tool call."""


class ToolKind(StrEnum):
    """Input format of a tool."""

    FUNCTION = "function"
    """A JSON object."""
    CUSTOM = "custom"
    """Free text (Codex's apply_patch); shown to the policy as a function with the one string parameter `input`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool that the agent program offers."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of the input, as the client sent it."""
    kind: ToolKind = ToolKind.FUNCTION
    namespace: str | None = None
    """Set for tools that the client groups (Codex's namespaced tools); goes back with each call."""

    @property
    def size(self) -> int:
        """Return the cost of hashing and rendering, in characters."""
        return _ENTRY + len(self.name) + len(self.description) + len(orjson.dumps(dict(self.parameters)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call that the policy made."""

    id: str
    """Unique in the session; made by the adapter, empty as parsed."""
    name: str
    arguments: Mapping[str, Any] | None
    """Parsed input; None when the text is not a JSON object."""
    raw: str
    """The input exactly as sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One entry of a conversation."""

    role: Role
    content: str = ""
    reasoning: str | None = None
    """Assistant only; None means that none was given."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Assistant only."""
    tool_call_id: str | None = None
    """Tool only: which call this answers."""
    tool_name: str | None = None
    """Tool only: the name of the tool that was called."""
    failed: bool = False
    """Tool only: the agent program marked the result as an error. No renderer shows it."""
    turn_id: str | None = None
    """Assistant only: the turn that the client says this is (from an item id or a thinking signature); None: it does not say."""

    @property
    def size(self) -> int:
        """Return the cost of hashing and rendering, in characters."""
        calls = sum(_ENTRY + len(call.name) + len(call.raw) for call in self.tool_calls)
        return _ENTRY + len(self.content) + len(self.reasoning or "") + calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A whole request in canonical form."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()

    @property
    def size(self) -> int:
        """Return the cost of hashing and rendering, in characters."""
        return sum(message.size for message in self.messages) + sum(tool.size for tool in self.tools)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReply:
    """Parse of the sampled tokens."""

    content: str
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    ill_formed: bool = False
    """A tool call was begun but cannot be read (bad JSON, cut off); `content` then holds its raw text."""
    truncated: bool = False
    """The token limit ended the reply."""

    def as_message(self) -> Message:
        """The reply as the assistant's message."""
        return Message(role=Role.ASSISTANT, content=self.content, reasoning=self.reasoning, tool_calls=self.tool_calls)

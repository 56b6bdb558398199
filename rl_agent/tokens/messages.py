"""Canonical messages: the format between dialects and renderers.

Adapters parse a vendor's request into `Message`s. Renderers convert `Message`s to token ids.
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
    """Instructions of the agent program. May also occur in the middle of a conversation."""
    USER = "user"
    """The task, and all messages that the agent program sends as the user."""
    ASSISTANT = "assistant"
    """The policy."""
    TOOL = "tool"
    """The result of one tool call."""


class ToolKind(StrEnum):
    """Input format of a tool."""

    FUNCTION = "function"
    """A JSON object."""
    CUSTOM = "custom"
    """Free text (Codex's apply_patch). The policy sees a function with `input` as its only string parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool that the agent program offers."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of the input, as the client sent it."""
    kind: ToolKind = ToolKind.FUNCTION
    namespace: str | None = None
    """Group of the tool at the client (Codex's namespaced tools). It is sent back with each call."""

    @property
    def size(self) -> int:
        """Return the cost of hashing and rendering, in characters."""
        return _ENTRY + len(self.name) + len(self.description) + len(orjson.dumps(dict(self.parameters)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call made by the policy."""

    id: str
    """Unique in the session. The adapter sets it; parsers leave it empty."""
    name: str
    arguments: Mapping[str, Any] | None
    """Parsed input, or None if the text is not a JSON object."""
    raw: str
    """The input exactly as sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One entry of a conversation."""

    role: Role
    content: str = ""
    reasoning: str | None = None
    """Assistant only. None: no reasoning."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Assistant only."""
    tool_call_id: str | None = None
    """Tool only: id of the answered call."""
    tool_name: str | None = None
    """Tool only: name of the called tool."""
    failed: bool = False
    """Tool only: the agent program marked the result as an error. No renderer shows it."""
    turn_id: str | None = None
    """Assistant only: turn id given by the client (from an item id or a thinking signature). None: not given."""

    @property
    def size(self) -> int:
        """Return the cost of hashing and rendering, in characters."""
        calls = sum(_ENTRY + len(call.name) + len(call.raw) for call in self.tool_calls)
        return _ENTRY + len(self.content) + len(self.reasoning or "") + calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A complete request in canonical form."""

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
    """A tool call is invalid (bad JSON, truncated). `content` then contains its raw text."""
    truncated: bool = False
    """The token limit ended the reply."""

    def as_message(self) -> Message:
        """Return the reply as an assistant message."""
        return Message(role=Role.ASSISTANT, content=self.content, reasoning=self.reasoning, tool_calls=self.tool_calls)

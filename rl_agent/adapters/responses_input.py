"""Parsing of the Responses API's `input` items and `tools` into canonical messages.

A reply comes back as several items (reasoning, message, calls). Adjacent items become one assistant message again,
unless their turn ids differ.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from rl_agent.adapters.body import (
    blocks_text,
    json_object,
    list_of,
    object_of,
    optional_text,
    plain_object_of,
    refuse,
    text_of,
    without_dropped,
)
from rl_agent.tokens.messages import Message, Role, ToolCall, ToolKind, ToolSpec
from rl_agent.tokens.tool_text import CUSTOM_INPUT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_OUR_ID: Final = re.compile(r"(?:(?:msg|rs|fc|ctc|call)_|rl_agent:)(t\d+)(?:_\d+)?")
_ROLES: Final = {"developer": Role.SYSTEM, "system": Role.SYSTEM, "user": Role.USER}


class _Reply:
    """Items of one assistant message."""

    def __init__(self) -> None:
        self.turn_id: str | None = None
        self.texts: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[ToolCall] = []

    def message(self) -> Message:
        return Message(
            role=Role.ASSISTANT,
            content="\n".join(self.texts),
            reasoning="\n".join(self.reasoning) if self.reasoning else None,
            tool_calls=tuple(self.calls),
            turn_id=self.turn_id,
        )


def read_input(value: Any, instructions: str, drops: Sequence[re.Pattern[str]]) -> tuple[Message, ...]:
    """Return the conversation. Leading system and developer texts become one system message. Raises RefusedError."""
    items = (
        [{"type": "message", "role": "user", "content": value}] if isinstance(value, str) else list_of(value, "input")
    )
    system = [shown for shown in (without_dropped(instructions, drops),) if shown]
    messages: list[Message] = []
    for message in _messages(items, drops):
        if message.role is Role.SYSTEM and not messages:
            system.append(message.content)
        else:
            messages.append(message)
    head = (Message(role=Role.SYSTEM, content="\n\n".join(system)),) if system else ()
    return (*head, *messages)


def read_tools(value: Any) -> tuple[ToolSpec, ...]:
    """Return functions, custom tools and the tools of namespaces. Tools that the vendor runs itself are left out."""
    return tuple(_tools(list_of(value, "tools"), "tools", None))


def _messages(items: Sequence[Any], drops: Sequence[re.Pattern[str]]) -> Iterator[Message]:
    reply: _Reply | None = None
    for i, value in enumerate(items):
        place = f"input.{i}"
        item = object_of(value, place)
        kind = optional_text(item.get("type"), f"{place}.type") or "message"
        if _is_reply(item, kind):
            turn_id = _turn_of(item)
            if reply is not None and None not in {turn_id, reply.turn_id} and turn_id != reply.turn_id:
                yield reply.message()
                reply = None
            reply = reply or _Reply()
            reply.turn_id = reply.turn_id or turn_id
            _add(reply, item, kind, place)
            continue
        if reply is not None:
            yield reply.message()
            reply = None
        message = _other(item, kind, place, drops)
        if message is not None:
            yield message
    if reply is not None:
        yield reply.message()


def _is_reply(item: Mapping[str, Any], kind: str) -> bool:
    if kind == "message":
        return item.get("role") == "assistant"
    return kind in {"reasoning", "function_call", "custom_tool_call"}


def _turn_of(item: Mapping[str, Any]) -> str | None:
    """Return the item's turn id, or None. Clients may drop some of the ids that contain it."""
    for name in ("id", "call_id", "encrypted_content"):
        value = item.get(name)
        found = _OUR_ID.fullmatch(value) if isinstance(value, str) else None
        if found:
            return found[1]
    return None


def _add(reply: _Reply, item: Mapping[str, Any], kind: str, place: str) -> None:
    if kind == "message":
        reply.texts.append(blocks_text(item.get("content"), f"{place}.content"))
    elif kind == "reasoning":
        thought = blocks_text(item.get("content"), f"{place}.content")
        reply.reasoning.append(thought or blocks_text(item.get("summary"), f"{place}.summary"))
    else:
        reply.calls.append(_call(item, kind, place))


def _call(item: Mapping[str, Any], kind: str, place: str) -> ToolCall:
    call_id = text_of(item.get("call_id"), f"{place}.call_id")
    namespace = optional_text(item.get("namespace"), f"{place}.namespace")
    name = text_of(item.get("name"), f"{place}.name")
    shown = f"{namespace}.{name}" if namespace else name
    if kind == "custom_tool_call":
        text = text_of(item.get("input"), f"{place}.input")
        return ToolCall(id=call_id, name=shown, arguments={CUSTOM_INPUT: text}, raw=text)
    raw = text_of(item.get("arguments"), f"{place}.arguments")
    return ToolCall(id=call_id, name=shown, arguments=json_object(raw), raw=raw)


def _other(item: Mapping[str, Any], kind: str, place: str, drops: Sequence[re.Pattern[str]]) -> Message | None:
    """Return a message that is not the policy's, or None for a system text that is dropped completely."""
    if kind in {"function_call_output", "custom_tool_call_output"}:
        return Message(
            role=Role.TOOL,
            content=blocks_text(item.get("output"), f"{place}.output"),
            tool_call_id=text_of(item.get("call_id"), f"{place}.call_id"),
        )
    if kind != "message":
        raise refuse(f"{place}.type", f"unsupported item type {kind!r}")
    role = _ROLES.get(text_of(item.get("role"), f"{place}.role"))
    if role is None:
        raise refuse(f"{place}.role", "Input should be 'user', 'assistant', 'system' or 'developer'")
    content = blocks_text(item.get("content"), f"{place}.content")
    if role is Role.SYSTEM:
        content = without_dropped(content, drops)
        if not content:
            return None
    return Message(role=role, content=content)


def _tools(values: Sequence[Any], place: str, namespace: str | None) -> Iterator[ToolSpec]:
    for i, value in enumerate(values):
        at = f"{place}.{i}"
        tool = object_of(value, at)
        kind = text_of(tool.get("type"), f"{at}.type")
        if kind == "namespace" and namespace is None:
            inner = list_of(tool.get("tools"), f"{at}.tools")
            yield from _tools(inner, f"{at}.tools", text_of(tool.get("name"), f"{at}.name"))
        elif kind in {"function", "custom"}:
            yield ToolSpec(
                name=text_of(tool.get("name"), f"{at}.name"),
                description=optional_text(tool.get("description"), f"{at}.description"),
                parameters=plain_object_of(tool.get("parameters") or {}, f"{at}.parameters"),
                kind=ToolKind.CUSTOM if kind == "custom" else ToolKind.FUNCTION,
                namespace=namespace,
            )

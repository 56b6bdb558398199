"""Strict parsing of replies with `<think>` reasoning and `<tool_call>` blocks of JSON (Hermes and Qwen style).

A call is either parsed exactly or reported as ill-formed. Nothing is repaired, and a truncated value is never accepted.
A call ends where its JSON ends, so an argument may contain `</tool_call>`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from rl_agent.tokens.messages import ParsedReply, ToolCall

if TYPE_CHECKING:
    from collections.abc import Mapping

THINK_OPEN: Final = "<think>"
THINK_CLOSE: Final = "</think>"
CALL_OPEN: Final = "<tool_call>"
CALL_CLOSE: Final = "</tool_call>"
_WHITE: Final = " \t\r\n"
_MAX_BROKEN: Final = 100
"""Maximum invalid calls. The rest of the reply is text, because each call costs a scan of the text before it."""


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A value and its text, exactly as sampled."""

    value: Any
    raw: str


def parse_tagged(text: str, *, truncated: bool, in_reasoning: bool = False) -> ParsedReply:
    """Parse `text`, a reply without its stop token. `in_reasoning`: the prompt already opened the reasoning."""
    reasoning, rest, closed = split_reasoning(text, in_reasoning)
    content: list[str] = []
    calls: list[ToolCall] = []
    broken = 0
    position = 0
    while broken < _MAX_BROKEN and (start := rest.find(CALL_OPEN, position)) >= 0:
        content.append(rest[position:start])
        call, end = _read_call(rest, start + len(CALL_OPEN))
        if call is None:
            broken += 1
            content.append(rest[start:end])
        else:
            calls.append(call)
        position = end
    content.append(rest[position:])
    return ParsedReply(
        content="".join(content).strip(),
        reasoning=reasoning,
        tool_calls=tuple(calls),
        ill_formed=broken > 0 or not (closed or truncated),
        truncated=truncated,
    )


def reasoning_is_open(text: str) -> bool:
    """Return whether `text` ends inside reasoning."""
    return text.rfind(THINK_OPEN) > text.rfind(THINK_CLOSE)


def split_reasoning(text: str, in_reasoning: bool) -> tuple[str | None, str, bool]:
    """Return (reasoning, rest, whether the reasoning is closed). `in_reasoning`: the prompt already opened it."""
    if not in_reasoning:
        stripped = text.lstrip(_WHITE)
        if not stripped.startswith(THINK_OPEN):
            return None, text, True
        text = stripped[len(THINK_OPEN) :]
    reasoning, mark, rest = text.partition(THINK_CLOSE)
    return reasoning.strip(), rest, bool(mark)


def told_apart(text: str) -> tuple[str | None, str]:
    """Return (reasoning, rest) of a text that starts with closed reasoning, else (None, text)."""
    reasoning, rest, closed = split_reasoning(text, in_reasoning=False)
    return (reasoning, rest) if closed else (None, text)


def _read_call(text: str, start: int) -> tuple[ToolCall | None, int]:
    """Return the call at `start` and its end. An invalid call ends at its closing tag or with the text."""
    opened = _skip_white(text, start)
    try:
        fields, end = read_object(text, opened)
    except (ValueError, RecursionError):
        return None, _closing_end(text, start)
    end = _skip_white(text, end)
    if not text.startswith(CALL_CLOSE, end):
        return None, _closing_end(text, start)
    end += len(CALL_CLOSE)
    call = call_of(fields)
    return call, end


def call_of(fields: Mapping[str, JsonValue]) -> ToolCall | None:
    """Return the call in an object with `name` and `arguments`, or None if it is not a call."""
    name = fields.get("name")
    arguments = fields.get("arguments")
    if name is None or not isinstance(name.value, str) or not name.value or arguments is None:
        return None
    if not (is_portable(name.raw) and is_portable(arguments.raw)):
        return None
    if isinstance(arguments.value, dict):
        return ToolCall(id="", name=name.value, arguments=arguments.value, raw=arguments.raw)
    if isinstance(arguments.value, str):  # some models write the arguments as a JSON string
        try:
            inner = json.loads(arguments.value)
        except (ValueError, RecursionError):
            return None
        if isinstance(inner, dict) and is_portable(arguments.value):
            return ToolCall(id="", name=name.value, arguments=inner, raw=arguments.value)
    return None


def is_portable(raw: str) -> bool:
    """Return whether a client can parse the JSON and send it back: no lone surrogate, no extreme nesting."""
    try:
        orjson.loads(raw)
    except (ValueError, UnicodeEncodeError):
        return False
    return True


def read_object(text: str, start: int) -> tuple[dict[str, JsonValue], int]:
    """Return the fields of the JSON object at `start` with raw texts. Raises ValueError, also for duplicate keys."""
    decoder = json.JSONDecoder(parse_constant=_refuse)
    if not text.startswith("{", start):
        raise ValueError("not an object")
    fields: dict[str, JsonValue] = {}
    position = _skip_white(text, start + 1)
    if text.startswith("}", position):
        return fields, position + 1
    while True:
        key, position = decoder.raw_decode(text, position)
        if not isinstance(key, str) or key in fields:
            raise ValueError("not a key")
        position = _skip_white(text, position)
        if not text.startswith(":", position):
            raise ValueError("no colon")
        position = _skip_white(text, position + 1)
        value, end = decoder.raw_decode(text, position)
        fields[key] = JsonValue(value, text[position:end])
        position = _skip_white(text, end)
        if text.startswith("}", position):
            return fields, position + 1
        if not text.startswith(",", position):
            raise ValueError("no comma")
        position = _skip_white(text, position + 1)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")  # Python would accept NaN and Infinity


def _skip_white(text: str, position: int) -> int:
    while position < len(text) and text[position] in _WHITE:
        position += 1
    return position


def _closing_end(text: str, start: int) -> int:
    """Return the end of the broken call's closing tag, else the next opening tag or the end of the text."""
    following = text.find(CALL_OPEN, start)
    limit = following if following >= 0 else len(text)
    close = text.find(CALL_CLOSE, start, limit)  # the limit keeps the scan of many openings linear
    return close + len(CALL_CLOSE) if close >= 0 else limit

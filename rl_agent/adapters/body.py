"""Validation of untrusted JSON. A value of the wrong type is refused by path and never causes an internal error."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import orjson

from rl_agent.adapters.base import RefusalReason, RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MAX_DEPTH: Final = 64
"""Maximum nesting depth of arguments and schemas. Writing or hashing deeper values could overflow the stack."""
_MAX_BRACKETS: Final = 200_000
_MAX_COMMAS: Final = 1_000_000
"""Limits on a body, because parsing JSON blocks the interpreter. Strings count too. Real requests are far smaller."""
_TEXT_TYPES = frozenset({"text", "input_text", "output_text", "reasoning_text", "summary_text"})


def read_body(raw: bytes) -> dict[str, Any]:
    """Parse a request body. Raises RefusedError."""
    if raw.count(b"[") + raw.count(b"{") > _MAX_BRACKETS or raw.count(b",") > _MAX_COMMAS:
        raise RefusedError(
            RefusalReason.TOO_LARGE, f"the body has more than {_MAX_BRACKETS} brackets or {_MAX_COMMAS} commas"
        )
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise RefusedError(RefusalReason.MALFORMED, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise RefusedError(RefusalReason.MALFORMED, "the body is not a JSON object")
    return body


def refuse(place: str, wanted: str) -> RefusedError:
    """Return the error for an invalid value."""
    return RefusedError(RefusalReason.MALFORMED, f"{place}: {wanted}")


def text_of(value: Any, place: str) -> str:
    """Return the value as a string."""
    if not isinstance(value, str):
        raise refuse(place, "Input should be a valid string")
    return value


def list_of(value: Any, place: str) -> list[Any]:
    """Return the value as a list. None becomes an empty list."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise refuse(place, "Input should be a valid list")
    return value


def object_of(value: Any, place: str) -> dict[str, Any]:
    """Return the value as an object."""
    if not isinstance(value, dict):
        raise refuse(place, "Input should be a valid object")
    return value


def plain_object_of(value: Any, place: str) -> dict[str, Any]:
    """Return the value as an object whose nesting is shallow enough to be written, hashed and shown."""
    found = object_of(value, place)
    level: list[Any] = [found]
    for _ in range(_MAX_DEPTH):
        level = [
            inner for v in level for inner in (v.values() if isinstance(v, dict) else v if isinstance(v, list) else ())
        ]
        if not level:
            return found
    raise refuse(place, f"Input should be nested at most {_MAX_DEPTH} levels deep")


def json_object(text: str) -> dict[str, Any] | None:
    """Return the object in a JSON text, or None if the text is not a JSON object."""
    try:
        value = plain_object_of(orjson.loads(text), "")
    except (orjson.JSONDecodeError, RefusedError):
        return None
    return value


def optional_text(value: Any, place: str) -> str:
    """Return the value as a string. None becomes an empty string."""
    return "" if value is None else text_of(value, place)


def limit_of(value: Any, place: str) -> int | None:
    """Return the value as a positive token limit. None means no limit."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise refuse(place, "Input should be a positive integer")
    return value


def blocks_text(content: Any, place: str) -> str:
    """Return the text of a string or a list of blocks. A block without text becomes its type in brackets."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(block_text(block, f"{place}.{i}") for i, block in enumerate(list_of(content, place)))


def block_text(value: Any, place: str) -> str:
    """Return the text of one content block."""
    block = object_of(value, place)
    kind = text_of(block.get("type"), f"{place}.type")
    if kind in _TEXT_TYPES:
        return text_of(block.get("text"), f"{place}.text")
    if kind == "tool_reference":
        return f"[tool {optional_text(block.get('tool_name'), place)}]"
    return f"[{kind} omitted]"


def compile_drops(patterns: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    """Compile the `drop_system` patterns. Raises ValueError for an invalid pattern."""
    try:
        return tuple(re.compile(p, re.DOTALL) for p in patterns)
    except re.error as error:
        raise ValueError(f"adapter.drop_system: {error.pattern!r}: invalid regular expression: {error}") from error


def without_dropped(block: str, drops: Sequence[re.Pattern[str]]) -> str:
    """Return a system text without its dropped parts: the whole text, or the lines that fully match a pattern."""
    if any(d.fullmatch(block.strip()) for d in drops):
        return ""
    if not drops:
        return block
    return "\n".join(line for line in block.split("\n") if not any(d.fullmatch(line.strip()) for d in drops)).strip()


def header(headers: Mapping[str, str], name: str) -> str:
    """Return a header's value, or an empty string."""
    return headers.get(name, "")

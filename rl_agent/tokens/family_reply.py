"""Strict parsing of a tool call found by the `renderers` library, which repairs and truncates calls silently.

If a family writes calls as JSON, the text of the block is parsed again and the arguments are kept as sampled. Other
forms have no such text. Only rendering the call again shows whether it was parsed completely (see `whole`).
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import orjson

from rl_agent.tokens.messages import ToolCall
from rl_agent.tokens.tagged_reply import call_of, is_portable, read_object

_KEYS: Final = ("arguments", "parameters", "args")
"""Names of the arguments field in JSON calls of different families."""
_VALUES: Final = (
    r"<parameter={}>\n?(.*?)\n?</parameter>",  # Qwen 3.5 and later, Nemotron
    r"<arg_key>{}</arg_key>\s*<arg_value>(.*?)</arg_value>",  # GLM
)
"""Pattern of a value, by family. `{}` is the key, and the group holds the value."""


def json_call(attempt: Any) -> ToolCall | None:
    """Return the call with its arguments as sampled, or None if the block's JSON differs from the library's parse."""
    if not _is_read(attempt):
        return None
    start = attempt.raw.find("{")
    try:
        fields, end = read_object(attempt.raw, start)
        if any(c.isalnum() for c in attempt.raw[end:]):
            return None
        if {key: field.value for key, field in fields.items()} == attempt.arguments:  # the name is outside the JSON
            raw = attempt.raw[start:end]
            usable = is_portable(raw) and is_portable(json.dumps(attempt.name))
            return ToolCall(id="", name=attempt.name, arguments=attempt.arguments, raw=raw) if usable else None
        key = next(key for key in _KEYS if key in fields)
        call = call_of({**fields, "arguments": fields[key]})
        same = call is not None and attempt.arguments in (call.arguments, fields[key].value)
    except (ValueError, RecursionError, StopIteration):
        return None
    return call if call is not None and same and call.name == attempt.name else None


def rebuilt_call(attempt: Any) -> ToolCall | None:
    """Return the call with re-encoded arguments, or None if JSON cannot represent them (NaN, 80-bit integers)."""
    if not _is_read(attempt) or attempt.raw.lstrip().startswith("{"):
        return None  # pure JSON needs no rebuilding
    try:
        arguments = orjson.loads(attempt.arguments) if isinstance(attempt.arguments, str) else attempt.arguments
        arguments = {key: _with_its_space(attempt.raw, key, value) for key, value in arguments.items()}
        raw = orjson.dumps(arguments)
        same = orjson.loads(raw) == arguments and is_portable(json.dumps(attempt.name))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return ToolCall(id="", name=attempt.name, arguments=arguments, raw=raw.decode()) if same else None


def _with_its_space(block: str, key: str, value: Any) -> Any:
    """Restore white space (such as code indentation) that was sampled around a text but stripped by the library."""
    if isinstance(value, str):
        for pattern in _VALUES:
            found = re.search(pattern.format(re.escape(key)), block, re.DOTALL)
            if found and found[1].strip() == value:
                return found[1]
    return value


def _is_read(attempt: Any) -> bool:
    """Return whether the library found a complete call with a string as its name."""
    return attempt.status == "ok" and isinstance(attempt.name, str) and bool(attempt.name)

"""Reads single fields of a row, and says of a bad one what is wrong with it."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any


class RowError(ValueError):
    """An invalid field of a row. The caller adds file and line."""


def text(row: Mapping[str, Any], *names: str) -> str:
    """The first of `names` that holds a non-empty string. Raises RowError naming them."""
    found = optional_text(row, *names)
    if found is None:
        raise RowError(f"{_or(names)} is missing; a non-empty string is needed")
    return found


def optional_text(row: Mapping[str, Any], *names: str) -> str | None:
    """The first of `names` that holds a non-empty string; None if all are missing or empty."""
    for name in names:
        value = row.get(name)
        if value is None or value == "":
            continue
        if not isinstance(value, str):
            raise RowError(f"`{name}` is {_shown(value)}; a string is needed")
        return clean(name, value)
    return None


def clean(name: str, value: str) -> str:
    """`value`, unless it holds what no file, command or path can."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise RowError(f"`{name}` is not Unicode text: {error.reason} at {error.start}") from error
    if "\0" in value:
        raise RowError(f"`{name}` holds a NUL character")
    return value


def mapping(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A mapping, or JSON text of one; empty if missing."""
    value = row.get(name)
    if isinstance(value, str) and value.strip():
        value = _literal(name, value)
    if value is None or value == "":
        return {}
    if isinstance(value, list) and value and all(isinstance(item, tuple) and len(item) == 2 for item in value):
        value = dict(value)  # a map of Parquet's
    if not isinstance(value, Mapping):
        raise RowError(f"`{name}` is {_shown(value)}; an object is needed")
    return value


def texts(row: Mapping[str, Any], *names: str) -> tuple[str, ...]:
    """A list of strings: a list, JSON text or Python-literal text of one, or nothing. Names differ in case only, usually."""
    for name in names:
        value = row.get(name)
        if value is None:
            continue
        if isinstance(value, str):
            value = _literal(name, value) if value.strip() else []
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise RowError(f"`{name}` is {_shown(value)}; a list of strings is needed")
        return tuple(clean(name, item) for item in value)
    return ()


def files(row: Mapping[str, Any], name: str) -> dict[str, str]:
    """Path -> text."""
    found = {str(path): content for path, content in mapping(row, name).items()}
    for path, content in found.items():
        if not isinstance(content, str):
            raise RowError(f"`{name}` holds {_shown(content)} for {path!r}; texts are needed")
        clean(name, path)
        clean(name, content)
        if not path or path.startswith("/") or ".." in path.split("/") or path.split("/")[0] == ".git":
            raise RowError(f"`{name}` holds the path {path!r}, which is not inside the repository")
    return found


def commands(row: Mapping[str, Any], name: str) -> tuple[str, ...]:
    r"""Shell commands: a string (in which a literal `\n` is a newline) or a list of strings."""
    value = row.get(name)
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        return (clean(name, value.replace("\\n", "\n")),) if value.strip() else ()
    return tuple(command for command in texts(row, name) if command.strip())


def absolute(row: Mapping[str, Any], name: str) -> str:
    """An absolute path."""
    value = text(row, name)
    if not value.startswith("/") or ".." in value.split("/") or value == "/":
        raise RowError(f"`{name}` is {value!r:.60}; an absolute path below / is needed")
    return value


def _literal(name: str, value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError) as error:
        raise RowError(f"`{name}` is {_shown(value)}; neither JSON nor a Python literal") from error


def _shown(value: Any) -> str:
    try:
        return f"{value!r:.60}" if not isinstance(value, str) else repr(value[:60])
    except RecursionError:
        return f"a {type(value).__name__} nested too deeply to show"


def _or(names: tuple[str, ...]) -> str:
    return " or ".join(f"`{name}`" for name in names)

"""Parsing of a row's fields. Errors name the field and the problem."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any


class RowError(ValueError):
    """An invalid field of a row. The caller adds file and line."""


def text(row: Mapping[str, Any], *names: str) -> str:
    """Return the first non-empty string among the fields `names`. Raises RowError if there is none."""
    found = optional_text(row, *names)
    if found is None:
        raise RowError(f"{_or(names)} is missing. Set it to a non-empty string.")
    return found


def optional_text(row: Mapping[str, Any], *names: str) -> str | None:
    """Return the first non-empty string among the fields `names`, or None if all are missing or empty."""
    for name in names:
        value = row.get(name)
        if value is None or value == "":
            continue
        if not isinstance(value, str):
            raise RowError(f"`{name}`: expected a string, got {_shown(value)}")
        return clean(name, value)
    return None


def clean(name: str, value: str) -> str:
    """Return `value`. Raises RowError if it contains characters that are invalid in files, commands and paths."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise RowError(f"`{name}`: not Unicode text: {error.reason} at {error.start}") from error
    if "\0" in value:
        raise RowError(f"`{name}`: contains a NUL character")
    return value


def mapping(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an object, also from JSON text. Empty if missing."""
    value = row.get(name)
    if isinstance(value, str) and value.strip():
        value = _literal(name, value)
    if value is None or value == "":
        return {}
    if isinstance(value, list) and value and all(isinstance(item, tuple) and len(item) == 2 for item in value):
        value = dict(value)  # a map in Parquet
    if not isinstance(value, Mapping):
        raise RowError(f"`{name}`: expected an object, got {_shown(value)}")
    return value


def texts(row: Mapping[str, Any], *names: str) -> tuple[str, ...]:
    """Return a list of strings, also from JSON or Python-literal text. Empty if all fields `names` are missing."""
    for name in names:
        value = row.get(name)
        if value is None:
            continue
        if isinstance(value, str):
            value = _literal(name, value) if value.strip() else []
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise RowError(f"`{name}`: expected a list of strings, got {_shown(value)}")
        return tuple(clean(name, item) for item in value)
    return ()


def files(row: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return a mapping of paths to texts. Raises RowError for a path outside the repository."""
    found = {str(path): content for path, content in mapping(row, name).items()}
    for path, content in found.items():
        if not isinstance(content, str):
            raise RowError(f"`{name}`: expected a string for {path!r}, got {_shown(content)}")
        clean(name, path)
        clean(name, content)
        if not path or path.startswith("/") or ".." in path.split("/") or path.split("/")[0] == ".git":
            raise RowError(f"`{name}`: path outside the repository: {path!r}")
    return found


def commands(row: Mapping[str, Any], name: str) -> tuple[str, ...]:
    r"""Return shell commands from a list of strings or a string, in which a literal `\n` is a newline."""
    value = row.get(name)
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        return (clean(name, value.replace("\\n", "\n")),) if value.strip() else ()
    return tuple(command for command in texts(row, name) if command.strip())


def absolute(row: Mapping[str, Any], name: str) -> str:
    """Return an absolute path below /."""
    value = text(row, name)
    if not value.startswith("/") or ".." in value.split("/") or value == "/":
        raise RowError(f"`{name}`: expected an absolute path below /, got {value!r:.60}")
    return value


def _literal(name: str, value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError) as error:
        raise RowError(f"`{name}`: neither JSON nor a Python literal: {_shown(value)}") from error


def _shown(value: Any) -> str:
    try:
        return f"{value!r:.60}" if not isinstance(value, str) else repr(value[:60])
    except RecursionError:
        return f"a {type(value).__name__} nested too deeply to show"


def _or(names: tuple[str, ...]) -> str:
    return " or ".join(f"`{name}`" for name in names)

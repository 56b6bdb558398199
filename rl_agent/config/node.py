"""A group's node: an instance of its schema or, for a class of the user's own, a plain dictionary."""

from __future__ import annotations

from typing import Any


def get(node: Any, key: str) -> Any:
    """A field of a node; None if it has no such field."""
    return node.get(key) if isinstance(node, dict) else getattr(node, key, None)

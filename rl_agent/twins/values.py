"""Other values: same type, different, and plausible for a reader who does not know the right one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

NEAR: Final = 3
"""Largest difference in length between a value and a near one."""
POOL_LENGTH: Final = 60
"""Longer constants are not taken as values for other places."""
POOL_SAMPLE: Final = 20


class Pool:
    """Constants of one file. Half of the other values come from it, so that a wrong value looks like its neighbours."""

    def __init__(self, tree: ast.AST, rng: random.Random) -> None:
        self._rng = rng
        self._known: dict[type, list[object]] = {}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or type(node.value) not in {int, float, str, bytes}:
                continue
            if _length(node.value) < POOL_LENGTH:
                self._known.setdefault(type(node.value), []).append(node.value)

    def other(self, value: object) -> object:
        """Return a value of the same type that differs. Raises TypeError for a type without constants."""
        if isinstance(value, bool):
            return not value
        if value is None:
            return 0
        known = self._known.get(type(value), [])
        near = [
            other
            for other in self._rng.sample(known, min(POOL_SAMPLE, len(known)))
            if other != value and abs(_length(other) - _length(value)) <= NEAR
        ]
        if near and self._rng.random() < 0.5:
            return self._rng.choice(near)
        if isinstance(value, int):
            return value + (self._rng.choice((1, -1)) if value > 1 else 1)
        if isinstance(value, float | complex):
            return value + 1
        if isinstance(value, str):
            return respelled(value, self._rng)
        if isinstance(value, bytes):
            return respelled(value.decode("latin-1"), self._rng).encode("latin-1")
        raise TypeError(type(value).__name__)


def _length(value: object) -> int:
    return len(value) if isinstance(value, str | bytes) else len(repr(value))


def respelled(text: str, rng: random.Random) -> str:
    """Return the text with one ASCII letter or digit replaced by its neighbour."""
    places = [n for n, sign in enumerate(text) if sign.isascii() and sign.isalnum() and text[n - 1 : n] != "\\"]
    if not places:
        return text + (text[-1] if text else "a")
    place = rng.choice(places)
    sign = text[place]
    follow = {"z": "y", "Z": "Y", "9": "8"}.get(sign) or chr(ord(sign) + 1)
    return text[:place] + follow + text[place + 1 :]

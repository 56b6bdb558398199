"""Finds the test function that a test's name belongs to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

SEPARATOR: Final = "::"
_WORD: Final = re.compile(r"\w+")


class Owners:
    """The test functions of a set of Python files."""

    def __init__(
        self, functions: Mapping[str, Collection[str]], bases: Mapping[str, Mapping[str, Sequence[str]]]
    ) -> None:
        """`functions`: path -> names of its test functions. `bases`: path -> class -> its base classes."""
        self._functions = functions
        self._bases = bases
        self._by_word: dict[str, list[tuple[str, str]]] = {}
        for path, names in functions.items():
            for name in names:
                self._by_word.setdefault(name.rpartition(SEPARATOR)[2], []).append((path, name))

    def of(self, test: str) -> str | None:
        """Return `path::function`, or None if no function or more than one fits.

        Knows the node ids of pytest, `path | Class::function`, and names that contain the words of both, as Django's
        `test_x (app.tests.Class)`.
        """
        name = test.partition("[")[0].replace(" | ", SEPARATOR).strip()
        path, found, rest = name.partition(SEPARATOR)
        if found and path in self._functions:
            return self._in_file(path, rest)
        words = _WORD.findall(name)
        known = set(words)
        scored = [
            (self._score(path, function, known), f"{path}{SEPARATOR}{function}")
            for word in dict.fromkeys(words)
            for path, function in self._by_word.get(word, ())
        ]
        best = max((score for score, _ in scored), default=-1)
        candidates = {owner for score, owner in scored if score == best}
        return candidates.pop() if len(candidates) == 1 and best >= 0 else None

    def _in_file(self, path: str, name: str) -> str | None:
        """Return the owner of a name in a known file. A test may be inherited from a class in the same file."""
        classes, _, function = name.rpartition(SEPARATOR)
        todo, seen = [classes], set[str]()
        while todo:
            each = todo.pop(0)
            seen.add(each)
            qualified = f"{each}{SEPARATOR}{function}" if each else function
            if qualified in self._functions[path]:
                return f"{path}{SEPARATOR}{qualified}"
            bases = self._bases[path].get(each.rpartition(SEPARATOR)[2], ())
            todo += [base for base in bases if base not in seen]
        return None

    def _score(self, path: str, function: str, words: Collection[str]) -> int:
        """Return how many words of class and path stand in the name; -1 if its class does not."""
        parts = function.split(SEPARATOR)[:-1]
        if any(part not in words and not self._is_base(path, part, words) for part in parts):
            return -1
        return len(parts) + sum(word in words for word in _WORD.findall(path.rpartition(".")[0]))

    def _is_base(self, path: str, name: str, words: Collection[str]) -> bool:
        return any(name in bases and derived in words for derived, bases in self._bases[path].items())

"""Source-preserving edits of test files."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable


class EditKind(StrEnum):
    """How an edit makes a test wrong, strongest first."""

    value = "value"
    """Another expected value: a constant of an equality, an `assertEqual` or a `match=`."""
    param = "param"
    """Another expected value in a row of `parametrize`."""
    built = "built"
    """Another argument of an object that is built to compare with."""
    helper = "helper"
    """Another argument of a helper that asserts."""
    doctest = "doctest"
    """Another expected output of a doctest."""
    literal = "literal"
    """Another literal on an asserting line, found by a lexer that does not know the language."""
    wrapped = "wrapped"
    """The expected value in a list, where it is computed. It catches objects that equal everything."""
    raises = "raises"
    """Another exception class."""
    negate = "negate"
    """A negated comparison."""
    canary = "canary"
    """A false assertion after the last statement."""


STRONG: Final = (EditKind.value, EditKind.param, EditKind.built, EditKind.helper, EditKind.doctest)
"""Kinds that change an expected value. They also catch code that reads the expected value from the test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Replacement of the bytes `start:end` of a file."""

    kind: EditKind
    start: int
    end: int
    text: str


def apply(content: bytes, edits: Iterable[Edit]) -> bytes:
    """Return `content` with the edits. Of overlapping edits (a decorator of a whole class), the last one counts."""
    before = len(content) + 1
    for edit in sorted(edits, key=lambda edit: (-edit.start, -edit.end)):
        if edit.end > before or edit.start == before:
            continue
        before = edit.start
        content = content[: edit.start] + edit.text.encode() + content[edit.end :]
    return content

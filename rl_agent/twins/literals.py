"""Twins for any language: one literal on an asserting line is changed, found by a lexer of strings, numbers and comments.

The lexer does not know the language, so an edit is worth something only after the gold patch was seen to fail it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rl_agent.twins.edit import Edit, EditKind
from rl_agent.twins.values import respelled

if TYPE_CHECKING:
    import random

TOKEN: Final = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/|(?m:^\s*#[^\n]*))"
    r"|(?P<string>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)"
    r"|(?P<number>(?<![\w.])\d+(?:\.\d+)?(?![\w.]))",
    re.DOTALL,
)
ASSERTING: Final = re.compile(
    r"assert|expect|equal|require\.|should|want|!=|Errorf|Fatalf|\.is\(|\.same|toBe|\bt\.|==|-eq|-ne|\btest\b|\[ ",
    re.IGNORECASE,
)
NOT_COMPARED: Final = re.compile(r"^\s*(?:import|from|package|use|#include)\b|require\($|\b(?:it|test|describe)\($")
"""Text before a literal that is a name and not an expected value."""
ESCAPING: Final = "\\%{$"


def literal_edits(text: str, rng: random.Random) -> list[Edit]:
    """Return the possible edits. The last literal of a file comes first, since expected values are mostly written last."""
    found: list[Edit] = []
    for match in TOKEN.finditer(text):
        if match.lastgroup == "comment":
            continue
        start, end = match.span()
        line_start = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", end)
        line = text[line_start : line_end if line_end >= 0 else len(text)]
        if not ASSERTING.search(line) or NOT_COMPARED.search(text[line_start:start]):
            continue
        other = _other(match.group(), is_number=match.lastgroup == "number", rng=rng)
        if other is not None:
            place = len(text[:start].encode())
            found.append(Edit(kind=EditKind.literal, start=place, end=place + len(match.group().encode()), text=other))
    return found[::-1]


def _other(word: str, *, is_number: bool, rng: random.Random) -> str | None:
    if is_number:
        return str(int(word) + 1) if word.isdigit() else str(float(word) + 1)
    inner = word[1:-1]
    signs = [n for n, sign in enumerate(inner) if sign.isascii() and sign.isalnum()]
    safe = [n for n in signs if n == 0 or inner[n - 1] not in ESCAPING]
    if not safe:
        return None
    place = rng.choice(safe)
    return word[0] + inner[:place] + respelled(inner[place], rng) + inner[place + 1 :] + word[-1]

"""Kinds of bugs in toy tasks: the purpose of a function, the right expression, and plausible wrong ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class BugKind:
    """One kind of bug in a function whose body is one expression over its arguments `{x}` and `{y}`."""

    name: str
    arity: int
    sentence: str
    """Purpose of the function. It names no argument, so the agent must read the file."""
    right: str
    wrong: tuple[str, str, str]
    samples: tuple[tuple[Any, ...], ...]
    """Arguments of the hidden test. They distinguish every wrong expression from the right one."""


_PAIRS: Final = ((7, 2), (3, 9), (12, 5), (4, 4), (10, 3))
_TEXTS: Final = (("abc",), ("Hello",), ("xY",))
_LISTS: Final = (([1, 2, 3],), ([9, 8, 7],), ([4, 5, 6, 7],))
_NUMBERS: Final = ((1,), (2,), (3,), (4,), (6,), (7,), (8,), (9,))

_TABLE: Final[tuple[tuple[str, int, str, str, tuple[str, str, str], tuple[tuple[Any, ...], ...]], ...]] = (
    ("add", 2, "return the sum of its arguments", "{x} + {y}", ("{x} - {y}", "{x} * {y}", "{y} - {x}"), _PAIRS),
    (
        "sub",
        2,
        "return the first argument minus the second",
        "{x} - {y}",
        ("{y} - {x}", "{x} + {y}", "{x} * {y}"),
        _PAIRS,
    ),
    (
        "rsub",
        2,
        "return the second argument minus the first",
        "{y} - {x}",
        ("{x} - {y}", "{x} + {y}", "{y} * {x}"),
        _PAIRS,
    ),
    ("mul", 2, "return the product of its arguments", "{x} * {y}", ("{x} + {y}", "{x} - {y}", "{x} ** {y}"), _PAIRS),
    (
        "div",
        2,
        "return the first argument divided by the second, rounded down",
        "{x} // {y}",
        ("{x} % {y}", "{y} // {x}", "{x} / {y}"),
        _PAIRS,
    ),
    (
        "mod",
        2,
        "return the remainder of the first argument by the second",
        "{x} % {y}",
        ("{x} // {y}", "{y} % {x}", "{x} - {y}"),
        _PAIRS,
    ),
    ("max", 2, "return the larger argument", "max({x}, {y})", ("min({x}, {y})", "{x}", "{y}"), _PAIRS),
    ("min", 2, "return the smaller argument", "min({x}, {y})", ("max({x}, {y})", "{x}", "{y}"), _PAIRS),
    (
        "ge",
        2,
        "tell if the first argument is at least the second",
        "{x} >= {y}",
        ("{x} > {y}", "{x} <= {y}", "{x} < {y}"),
        _PAIRS,
    ),
    (
        "gt",
        2,
        "tell if the first argument is greater than the second",
        "{x} > {y}",
        ("{x} >= {y}", "{x} < {y}", "{x} <= {y}"),
        _PAIRS,
    ),
    (
        "le",
        2,
        "tell if the first argument is at most the second",
        "{x} <= {y}",
        ("{x} < {y}", "{x} >= {y}", "{x} > {y}"),
        _PAIRS,
    ),
    (
        "lt",
        2,
        "tell if the first argument is less than the second",
        "{x} < {y}",
        ("{x} <= {y}", "{x} > {y}", "{x} >= {y}"),
        _PAIRS,
    ),
    ("eq", 2, "tell if its arguments are equal", "{x} == {y}", ("{x} != {y}", "{x} <= {y}", "{x} >= {y}"), _PAIRS),
    ("ne", 2, "tell if its arguments are different", "{x} != {y}", ("{x} == {y}", "{x} < {y}", "{x} > {y}"), _PAIRS),
    (
        "even",
        1,
        "tell if its argument is even",
        "{x} % 2 == 0",
        ("{x} % 2 == 1", "{x} % 3 == 0", "{x} // 2 == 0"),
        _NUMBERS,
    ),
    (
        "odd",
        1,
        "tell if its argument is odd",
        "{x} % 2 == 1",
        ("{x} % 2 == 0", "{x} % 3 == 1", "{x} // 2 == 1"),
        _NUMBERS,
    ),
    ("inc", 1, "return its argument plus one", "{x} + 1", ("{x} - 1", "{x} + 2", "{x}"), _NUMBERS),
    ("dec", 1, "return its argument minus one", "{x} - 1", ("{x} + 1", "{x} - 2", "{x}"), _NUMBERS),
    ("last", 1, "return the last item of its argument", "{x}[-1]", ("{x}[0]", "{x}[1]", "{x}[-2]"), _LISTS),
    ("first", 1, "return the first item of its argument", "{x}[0]", ("{x}[1]", "{x}[-1]", "{x}[2]"), _LISTS),
    (
        "last_index",
        1,
        "return the last index of its argument",
        "len({x}) - 1",
        ("len({x})", "len({x}) + 1", "len({x}) - 2"),
        _LISTS,
    ),
    (
        "up",
        1,
        "return its argument in upper case",
        "{x}.upper()",
        ("{x}.lower()", "{x}.title()", "{x}.strip()"),
        _TEXTS,
    ),
    (
        "low",
        1,
        "return its argument in lower case",
        "{x}.lower()",
        ("{x}.upper()", "{x}.title()", "{x}.strip()"),
        (("Abc",), ("HELLO",), ("xY",)),
    ),
)

KINDS: Final = {
    name: BugKind(name=name, arity=arity, sentence=sentence, right=right, wrong=wrong, samples=samples)
    for name, arity, sentence, right, wrong, samples in _TABLE
}
"""Every kind by name."""

ARGUMENTS: Final = ("a", "b", "x", "y", "m", "n", "left", "right", "low", "high", "width", "height")
FUNCTIONS: Final = (
    "total",
    "diff",
    "scale",
    "share",
    "rest",
    "pick",
    "choose",
    "check",
    "test",
    "same",
    "other",
    "measure",
    "combine",
    "update",
    "compare",
    "apply",
    "reduce",
    "join",
    "split",
    "adjust",
    "compute",
    "result",
    "value",
    "score",
    "level",
    "rank",
    "limit",
    "bound",
)
FILES: Final = tuple(
    f"{name}.py" for name in ["calc", "tools", "shop", "util", "math2", "game", "bank", "clock", "grid", "text", "core"]
)

"""Finds where Python test functions say what is right, and the edits that make them say something wrong."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rl_agent.twins.edit import Edit, EditKind
from rl_agent.twins.python_source import Source, callee, is_computed, leaves, value_names
from rl_agent.twins.values import respelled

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Iterator, Sequence

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module
SWAPS: Final = {
    "assertEqual": "assertNotEqual",
    "assertTrue": "assertFalse",
    "assertIs": "assertIsNot",
    "assertIn": "assertNotIn",
    "assertIsNone": "assertIsNotNone",
    "assertIsInstance": "assertNotIsInstance",
    "assertAlmostEqual": "assertNotAlmostEqual",
    "assertLess": "assertGreaterEqual",
    "assertGreater": "assertLessEqual",
    "assertRegex": "assertNotRegex",
}
EQUALITIES: Final = frozenset(
    [
        "assertEqual",
        "assertEquals",
        "assertAlmostEqual",
        "assertListEqual",
        "assertDictEqual",
        "assertTupleEqual",
        "assertSetEqual",
        "assertSequenceEqual",
        "assertMultiLineEqual",
        "assertCountEqual",
        "assertIs",
    ]
)
OPPOSITES: Final = (
    SWAPS
    | {after: before for before, after in SWAPS.items()}
    | dict.fromkeys(EQUALITIES - {"assertIs", "assertAlmostEqual", "assertCountEqual"}, "assertNotEqual")
)
"""Method of unittest -> the method that fails wherever it passes."""
RAISING: Final = frozenset({"raises", "assertRaises", "assertRaisesRegex"})
NEGATED: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.Lt: ">=",
    ast.GtE: "<",
    ast.Gt: "<=",
    ast.LtE: ">",
}
EXCEPTIONS: Final = (
    *("KeyError", "ZeroDivisionError", "NotImplementedError", "AttributeError"),
    *("ImportError", "OSError"),
)
ASSERTING: Final = re.compile(r"assert|check|verif|expect|ensure|close|compare|equal|same|match|validate|eq_")
"""Part of the names of helpers that assert."""
DOCTEST: Final = re.compile(
    rb"^(?P<indent>[ \t]*)>>> [^\n]*\n(?:(?P=indent)\.\.\. ?[^\n]*\n)*(?P<output>(?P=indent)(?!>>>|\.\.\.)\S[^\n]*)\n",
    re.M,
)
"""An example of a doctest, and the first line of its expected output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTest:
    """A test function and its possible edits, strongest kinds first."""

    name: str
    """Classes and function, as in a node id of pytest. Empty for a plain script."""
    edits: Sequence[Edit]
    decoys: Sequence[Edit]
    """Edits of the same shapes that leave the test right, so that the shape of an assertion does not tell a wrong test."""


def find_tests(content: bytes, rng: random.Random, named: Collection[str] = ()) -> dict[str, FoundTest]:
    """Return the test functions of a file by name; of a plain script, the whole module as one test.

    `named`: names of functions that are tests although their names do not begin with `test`.

    Raises SyntaxError or ValueError for content that this interpreter cannot parse.
    """
    source = Source(content, rng)
    found = {
        name: Finder(source, node, decorators, self_name).find(name)
        for name, node, decorators, self_name in _tests(source.tree.body, "", named, is_unittest=False, decorators=[])
    }
    return found or {"": Finder(source, source.tree, [], "").find("")}


def class_bases(content: bytes) -> dict[str, list[str]]:
    """Return the names of the base classes of each class in a file."""
    nodes = (node for node in ast.walk(ast.parse(content)) if isinstance(node, ast.ClassDef))
    return {node.name: [base.id for base in node.bases if isinstance(base, ast.Name)] for node in nodes}


def doctest_edits(content: bytes, rng: random.Random) -> list[Edit]:
    """Return edits that change the expected output of one doctest each."""
    found = []
    for match in DOCTEST.finditer(content):
        start, end = match.span("output")
        text = respelled(content[start:end].decode(errors="surrogateescape").strip(), rng)
        start += len(match["indent"])
        if text.isascii():
            found.append(Edit(kind=EditKind.doctest, start=start, end=end, text=text))
    return found


def _tests(
    body: Sequence[ast.stmt], prefix: str, named: Collection[str], *, is_unittest: bool, decorators: list[ast.expr]
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, list[ast.expr], str]]:
    """Yield name, node, decorators and the name of `self` (empty outside unittest) of each test function."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            inside = [*decorators, *node.decorator_list]
            unittest = is_unittest or _uses_unittest(node)
            yield from _tests(node.body, f"{prefix}{node.name}::", named, is_unittest=unittest, decorators=inside)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.lower().startswith("test") or node.name in named:
                first = node.args.args[0].arg if node.args.args and is_unittest and prefix else ""
                yield f"{prefix}{node.name}", node, [*decorators, *node.decorator_list], first
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for part in ("body", "orelse", "finalbody"):
                yield from _tests(
                    getattr(node, part, []), prefix, named, is_unittest=is_unittest, decorators=decorators
                )


def _uses_unittest(node: ast.ClassDef) -> bool:
    return any("TestCase" in ast.unparse(base) for base in node.bases) or any(
        isinstance(inner, ast.Attribute)
        and inner.attr.startswith("assert")
        and isinstance(inner.value, ast.Name)
        and inner.value.id == "self"
        for inner in ast.walk(node)
    )


class Finder:
    """Edits of one test function."""

    def __init__(self, source: Source, function: Function, decorators: list[ast.expr], self_name: str) -> None:
        self._source = source
        self._function = function
        self._decorators = decorators
        self._self_name = self_name
        self._found: list[Edit] = []
        self._decoys: list[Edit] = []
        self._expected: set[str] = set()
        """Variables that are compared with something."""
        self._compared: list[ast.expr] = []

    def find(self, name: str) -> FoundTest:
        """Return the function, `name` by name, with its edits."""
        for node in ast.walk(self._function):
            if isinstance(node, ast.Assert):
                self._assertion(node.test)
            elif isinstance(node, ast.Call):
                self._call(node)
            elif isinstance(node, ast.Expr):
                self._statement(node)
        self._assigned()
        self._parameters()
        self._canary()
        unique = {(edit.start, edit.end, edit.kind): edit for edit in self._found}
        order = list(EditKind)
        edits = sorted(unique.values(), key=lambda edit: order.index(edit.kind))
        return FoundTest(name=name, edits=edits, decoys=self._decoys)

    def _add(self, kind: EditKind, node: ast.expr, text: str) -> None:
        self._found.append(self._source.edit(kind, node, text))

    def _values(self, *sides: ast.expr) -> None:
        """Add the constants of the expected side: the sides that compute nothing, or both if both compute."""
        still = [side for side in sides if not is_computed(side)]
        for side in still or sides:
            for leaf, kind in leaves(side):
                self._add(kind, leaf, self._source.other(leaf))
            self._expected |= value_names(side)
        self._compared += sides

    def _assertion(self, test: ast.expr) -> None:
        source = self._source
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            operator, left, right = test.ops[0], test.left, test.comparators[0]
            is_literal = isinstance(right, ast.Constant) and right.value is not None
            if isinstance(operator, ast.Eq) or (isinstance(operator, ast.Is) and is_literal):
                self._values(left, right)
                self._add(EditKind.wrapped, right, f"[{source.text(right)}]")
                both = f"[{source.text(left)}] == [{source.text(right)}]"
                self._decoys.append(source.edit(EditKind.wrapped, test, both))
            plain = source.between(left, right).strip(" ") in {*NEGATED.values()}
            opposite = f"{source.text(left)} {NEGATED[type(operator)]} {source.text(right)}"
            self._add(EditKind.negate, test, opposite if plain else f"not ({source.text(test)})")
            if plain:
                self._decoys.append(source.edit(EditKind.negate, test, f"not ({opposite})"))
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._add(EditKind.negate, test, f"({source.text(test.operand)})")
        elif not isinstance(test, ast.Constant):
            for part in test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else ():
                if isinstance(part, ast.Compare) and len(part.ops) == 1 and isinstance(part.ops[0], ast.Eq):
                    self._values(part.left, part.comparators[0])
            self._add(EditKind.negate, test, f"not ({source.text(test)})")

    def _call(self, node: ast.Call) -> None:
        name = callee(node)
        if name in RAISING and node.args:
            self._raises(node, name)
        if not isinstance(node.func, ast.Attribute):
            return
        if name in EQUALITIES and len(node.args) >= 2:
            self._values(*node.args[:2])
            self._add(EditKind.wrapped, node.args[1], f"[{self._source.text(node.args[1])}]")
        owner = node.func.value
        if name in OPPOSITES and isinstance(owner, ast.Name) and owner.id == self._self_name:
            self._add(EditKind.negate, node.func, f"{owner.id}.{OPPOSITES[name]}")

    def _raises(self, node: ast.Call, name: str) -> None:
        source, expected = self._source, node.args[0]
        if not isinstance(expected, ast.Starred | ast.Tuple):
            others = [other for other in EXCEPTIONS if other != source.text(expected)]
            self._add(EditKind.raises, expected, source.rng.choice(others))
        texts = [word.value for word in node.keywords if word.arg == "match"]
        texts += node.args[1:2] if name == "assertRaisesRegex" else []
        for text in texts:
            if isinstance(text, ast.Constant) and isinstance(text.value, str) and text.value:
                self._add(EditKind.value, text, repr(respelled(text.value, source.rng)))

    def _statement(self, node: ast.Expr) -> None:
        """Add the arguments of a helper that asserts: a call whose result is not used."""
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if not isinstance(call, ast.Call):
            return
        name = callee(call).lower().lstrip("_")
        if name in {each.lower() for each in EQUALITIES} or not ASSERTING.search(name) or "raises" in name:
            return
        for argument in reversed(call.args):
            inner = [
                each for each in ast.walk(argument) if isinstance(each, ast.Call) and "equal" in callee(each).lower()
            ]
            for item in (argument, *(value for each in inner for value in each.args)):
                for leaf, _ in leaves(item):
                    self._add(EditKind.helper, leaf, self._source.other(leaf))

    def _assigned(self) -> None:
        """Add the constants of a local variable that is used for nothing but comparing."""
        compared = {id(inner) for side in self._compared for inner in ast.walk(side)}
        names = [node for node in ast.walk(self._function) if isinstance(node, ast.Name)]
        for name in sorted(self._expected):
            loads = [node for node in names if node.id == name and isinstance(node.ctx, ast.Load)]
            values = [
                node.value
                for node in ast.walk(self._function)
                if isinstance(node, ast.Assign)
                and len(node.targets) == 1
                and isinstance(node.targets[0], ast.Name)
                and node.targets[0].id == name
            ]
            set_once = len(values) == 1 and sum(node.id == name for node in names) == len(loads) + 1
            if set_once and all(id(load) in compared for load in loads):
                for leaf, kind in leaves(values[0]):
                    self._add(kind, leaf, self._source.other(leaf))

    def _parameters(self) -> None:
        """Add the constants of parameters that are compared with something."""
        for decorator in self._decorators:
            if isinstance(decorator, ast.Call) and callee(decorator) == "parametrize" and len(decorator.args) >= 2:
                for name, value in _parameter_values(*decorator.args[:2]):
                    for leaf, _ in leaves(value) if name in self._expected else ():
                        self._add(EditKind.param, leaf, self._source.other(leaf))

    def _canary(self) -> None:
        """Add a false assertion after the last statement, in the style of the test."""
        first, last = self._function.body[0], self._function.body[-1]
        is_generator = any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in ast.walk(self._function))
        indent = self._source.indent(first)
        if isinstance(last, ast.Return | ast.Raise) or is_generator or indent is None:
            return
        if first.lineno == getattr(self._function, "lineno", 0):
            return
        _, end = self._source.span(last)
        number = self._source.rng.randrange(2, 9)
        style = f"{self._self_name}.assertEqual({{}}, {{}})" if self._self_name else "assert {} == {}"
        for edits, other in ((self._found, number + 1), (self._decoys, number)):
            edits.append(
                Edit(kind=EditKind.canary, start=end, end=end, text=f"\n{indent}{style.format(number, other)}")
            )


def _parameter_values(names: ast.expr, rows: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield name and value of each parameter in each row of a `parametrize`."""
    if isinstance(names, ast.Constant) and isinstance(names.value, str):
        listed = [name.strip() for name in names.value.split(",") if name.strip()]
        is_single = "," not in names.value
    elif isinstance(names, ast.List | ast.Tuple):
        listed, is_single = [str(getattr(item, "value", "")) for item in names.elts], False
    else:
        return
    for row in rows.elts if isinstance(rows, ast.List | ast.Tuple) else ():
        if isinstance(row, ast.Call) and callee(row) == "param":
            yield from zip(listed, row.args, strict=False)
        elif is_single:
            yield listed[0], row
        elif isinstance(row, ast.List | ast.Tuple):
            yield from zip(listed, row.elts, strict=False)

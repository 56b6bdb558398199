"""Parsed Python test files: spans of nodes in bytes, and edits of nodes."""

from __future__ import annotations

import ast
import codecs
import io
import tokenize
from typing import TYPE_CHECKING, Final

from rl_agent.twins.edit import Edit, EditKind
from rl_agent.twins.values import Pool

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

CONTAINERS: Final = frozenset(
    [
        *("list", "tuple", "set", "frozenset", "dict", "OrderedDict", "deque", "iter", "sorted"),
        *("bytes", "bytearray", "str", "int", "float", "approx", "Decimal", "Fraction"),
        *("datetime", "date", "time", "timedelta", "u", "b"),
    ]
)
"""Calls that stand for a value itself."""
TOLERANCES: Final = frozenset({"abs", "rel"})


class Source:
    """One Python file. Raises SyntaxError or ValueError if it cannot be parsed."""

    def __init__(self, content: bytes, rng: random.Random) -> None:
        self.content = content
        self.tree = ast.parse(content)
        self.rng = rng
        self.pool = Pool(self.tree, rng)
        self._line_starts = line_starts(content)

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return the start and end of a node in bytes."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._line_starts[node.lineno - 1] + node.col_offset
        return start, self._line_starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.expr | ast.stmt) -> str:
        """Return the text of a node."""
        start, end = self.span(node)
        return self.content[start:end].decode()

    def between(self, left: ast.expr, right: ast.expr) -> str:
        """Return the text between two nodes."""
        return self.content[self.span(left)[1] : self.span(right)[0]].decode()

    def indent(self, statement: ast.stmt) -> str | None:
        """Return the indentation of a statement, or None if other code stands before it on its line."""
        before = self.content[self._line_starts[statement.lineno - 1] : self.span(statement)[0]].decode()
        return None if before.strip() else before

    def edit(self, kind: EditKind, node: ast.expr | ast.stmt, text: str) -> Edit:
        """Return the edit that replaces a node."""
        start, end = self.span(node)
        return Edit(kind=kind, start=start, end=end, text=text)

    def other(self, leaf: ast.expr) -> str:
        """Return the text of another value for a leaf."""
        if isinstance(leaf, ast.Constant):
            return repr(self.pool.other(leaf.value))
        return {ast.List: "[0]", ast.Tuple: "(0,)", ast.Set: "{0}"}.get(type(leaf), "{0: 0}")


def callee(call: ast.Call) -> str:
    """Return the last name of the called expression."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def leaves(node: ast.expr, kind: EditKind = EditKind.value) -> Iterator[tuple[ast.expr, EditKind]]:
    """Yield the constants (and empty displays) that are part of a value itself, not of a computation."""
    if isinstance(node, ast.Constant):
        if node.value is not Ellipsis:
            yield node, kind
    elif isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict):
        items = node.values if isinstance(node, ast.Dict) else node.elts
        if not items:
            yield node, kind
        for item in items:
            yield from leaves(item, kind)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield from leaves(node.left, kind)
        yield from leaves(node.right, kind)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield from leaves(node.operand, kind)
    elif isinstance(node, ast.Starred):
        yield from leaves(node.value, kind)
    elif isinstance(node, ast.Call):
        name = callee(node)
        if name in CONTAINERS or name[:1].isupper():
            inner = kind if name in CONTAINERS else EditKind.built
            for item in (*node.args, *(word.value for word in node.keywords if word.arg not in TOLERANCES)):
                yield from leaves(item, inner)


def value_names(node: ast.expr) -> set[str]:
    """Return the names of variables that a value consists of."""
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.List | ast.Tuple):
        return {name for item in node.elts for name in value_names(item)}
    if isinstance(node, ast.BinOp):
        return value_names(node.left) | value_names(node.right)
    if isinstance(node, ast.Call) and callee(node) in CONTAINERS:
        return {name for item in node.args for name in value_names(item)}
    return set()


def is_computed(node: ast.expr) -> bool:
    """Return True if a value needs the code under test, as far as its syntax tells."""
    return any(
        isinstance(inner, ast.Attribute | ast.Subscript | ast.Await)
        or (isinstance(inner, ast.Call) and callee(inner) not in CONTAINERS)
        for inner in ast.walk(node)
    )


def line_starts(content: bytes) -> list[int]:
    """Return where the lines begin to which positions of `ast` refer, and the end of the last one."""
    starts = [0]
    for line in content.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    if content.startswith(codecs.BOM_UTF8):
        starts[0] = len(codecs.BOM_UTF8)
    return starts


def without_comments(content: bytes, *, docstrings: bool) -> bytes:
    """Return Python source without the text of comments and, if `docstrings`, without the docstrings of tests that hold no doctest.

    A comment may tell the right value. Content that is not valid Python is returned as it is.
    """
    try:
        tree = ast.parse(content)
        tokens = list(tokenize.tokenize(io.BytesIO(content).readline))
    except (SyntaxError, ValueError, tokenize.TokenError, RecursionError):
        return content
    mark = codecs.BOM_UTF8 if content.startswith(codecs.BOM_UTF8) else b""
    encoding = tokens[0].string
    # The lines of `tokenize`: `str.splitlines` would also split at form feeds.
    lines = [line.decode(encoding) for line in io.BytesIO(content.removeprefix(mark))]
    for token in tokens:
        if token.type == tokenize.COMMENT and not _is_needed(token):
            row, column = token.start
            line = lines[row - 1]
            lines[row - 1] = line[: column + 1] + line[column + len(token.string) :]
    made = "".join(lines).encode()
    if docstrings:
        made = _without_docstrings(made, tree)
    return mark + made.decode().encode(encoding)


def _is_needed(comment: tokenize.TokenInfo) -> bool:
    """Return True for the first two lines of a file: an interpreter or an encoding."""
    return comment.start[0] <= 2 and (comment.string.startswith("#!") or "coding" in comment.string)


def _without_docstrings(content: bytes, tree: ast.AST) -> bytes:
    """Return UTF-8 text without docstrings."""
    starts = line_starts(content)
    spans = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Module):
            body = node.body
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and "test" in node.name.lower():
            body = node.body  # the docstrings of other functions may be what is tested
        else:
            continue
        if not body:
            continue
        first = body[0]
        text = first.value.value if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) else None
        if isinstance(text, str) and text and ">>>" not in text:
            assert first.end_lineno is not None
            assert first.end_col_offset is not None
            start = starts[first.lineno - 1] + first.col_offset
            spans.append((start, starts[first.end_lineno - 1] + first.end_col_offset))
    for start, end in sorted(spans, reverse=True):
        content = content[:start] + b'""' + content[end:]
    return content

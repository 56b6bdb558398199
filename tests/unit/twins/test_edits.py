"""Edits that make tests wrong: they are found, they keep the source, and each makes its test fail."""

from __future__ import annotations

import ast
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_agent.twins.edit import Edit, EditKind, apply
from rl_agent.twins.literals import literal_edits
from rl_agent.twins.make import candidates
from rl_agent.twins.python_source import without_comments
from rl_agent.twins.python_tests import doctest_edits, find_tests

if TYPE_CHECKING:
    from collections.abc import Callable

    from rl_agent.twins.python_tests import FoundTest

CASES: dict[str, tuple[str, EditKind]] = {
    "equality": ("def test_a():\n    assert f() == 5\n", EditKind.value),
    "equality, constant first": ("def test_a():\n    assert 5 == f()\n", EditKind.value),
    "list": ("def test_a():\n    assert f() == [1, {'a': (2, 'b')}]\n", EditKind.value),
    "variable": ("def test_a():\n    expected = 5\n    assert f() == expected\n", EditKind.value),
    "unittest": ("class A(TestCase):\n    def test_a(self):\n        self.assertEqual(f(), 5)\n", EditKind.value),
    "match": ("def test_a():\n    with raises(ValueError, match='bad value'):\n        f()\n", EditKind.value),
    "parametrize": (
        "@mark.parametrize('a,b', [(1, 2), (3, 4)])\ndef test_a(a, b):\n    assert f(a) == b\n",
        EditKind.param,
    ),
    "one parameter": ("@mark.parametrize('b', [1, 2])\ndef test_a(b):\n    assert f() == b\n", EditKind.param),
    "built": ("def test_a():\n    assert f() == Point(1, y=2)\n", EditKind.built),
    "helper": ("def test_a():\n    check_total(f(), 5)\n", EditKind.helper),
    "computed": ("def test_a():\n    assert f() == g()\n", EditKind.wrapped),
    "raises": ("def test_a():\n    with raises(ValueError):\n        f()\n", EditKind.raises),
    "truth": ("def test_a():\n    assert f()\n", EditKind.negate),
    "not": ("def test_a():\n    assert not f()\n", EditKind.negate),
    "membership": ("def test_a():\n    assert 'x' in f()\n", EditKind.negate),
    "assertTrue": ("class A(TestCase):\n    def test_a(self):\n        self.assertTrue(f())\n", EditKind.negate),
    "no assertion": ("def test_a():\n    f()\n", EditKind.canary),
    "script": ("import f\nassert f() == 5\n", EditKind.value),
}


def only(text: str, seed: int = 0) -> FoundTest:
    (found,) = find_tests(text.encode(), random.Random(seed)).values()
    return found


@pytest.mark.parametrize("case", CASES)
def test_the_strongest_edit_of_a_test_is_found_and_the_rest_of_the_file_stays(case: str) -> None:
    text, kind = CASES[case]
    for seed in range(20):
        edit = only(text, seed).edits[0]
        assert edit.kind is kind
        changed = apply(text.encode(), [edit])
        assert changed != text.encode()
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))
        assert changed.startswith(text.encode()[: edit.start])
        assert changed.endswith(text.encode()[edit.end :])


RUNS: dict[str, tuple[str, Callable[..., object]]] = {
    "value": (
        "def test_a():\n    assert f(2, 3) == 5\n    assert [f(1, 1), 'a'] == [2, 'a']\n    assert f(1, 0) is not None\n",
        lambda a, b: a + b,
    ),
    "texts": (
        "def test_a():\n    assert f('x') == 'x!'\n    assert f('a') in ('a!', 'b!')\n    assert not f('') == ''\n",
        lambda a: f"{a}!",
    ),
    "bytes": ("def test_a():\n    assert f() == b'ab\\\\n'\n    assert len(f()) > 2\n", lambda: b"ab\\n"),
}


@pytest.mark.parametrize("case", RUNS)
def test_every_edit_of_a_test_that_passes_makes_it_fail_and_every_decoy_leaves_it_right(case: str) -> None:
    text, function = RUNS[case]

    def passes(content: bytes) -> bool:
        names: dict[str, object] = {"f": function}
        exec(compile(content, "t.py", "exec"), names)
        test = names["test_a"]
        assert callable(test)
        try:
            test()
        except AssertionError:
            return False
        return True

    assert passes(text.encode())
    for seed in range(30):
        found = only(text, seed)
        assert len(found.edits) > 3
        assert not any(passes(apply(text.encode(), [edit])) for edit in found.edits)
        assert found.decoys
        assert all(passes(apply(text.encode(), [decoy])) for decoy in found.decoys)


def test_an_edit_replaces_bytes_and_overlapping_edits_are_not_both_applied() -> None:
    text = "x = 'é'; y = 1\n".encode()
    one = Edit(kind=EditKind.value, start=text.index(b"1"), end=text.index(b"1") + 1, text="2")
    wide = Edit(kind=EditKind.value, start=text.index(b"y"), end=len(text) - 1, text="z")
    assert apply(text, [one]) == "x = 'é'; y = 2\n".encode()
    assert apply(text, [one, wide]) in ("x = 'é'; y = 2\n".encode(), "x = 'é'; z\n".encode())


COMMENTED = '''\
#!/usr/bin/env python
# -*- coding: utf-8 -*-
"""Says 5."""
import os  # 5


def test_a():
    """It is 5."""
    # 5
    assert f() == 4 + 1  # 5, "not a # comment"
    assert "# kept" == '# kept'


def g():
    """Doctest.

    >>> g()
    5
    """
'''


def test_comments_and_docstrings_go_but_not_doctests_and_not_what_looks_like_a_comment() -> None:
    made = without_comments(COMMENTED.encode(), docstrings=True).decode()
    assert made.startswith("#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n")
    assert made.count("5") == 1
    assert ">>> g()" in made
    assert '"# kept"' in made
    kept = without_comments(COMMENTED.encode(), docstrings=False).decode()
    assert '"""It is 5."""' in kept
    assert "# 5" not in kept
    assert without_comments(b"def (", docstrings=True) == b"def ("


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\xef\xbb\xbf# mark\r\nx = 1 # 1\r\n", b"\xef\xbb\xbf#\r\nx = 1 #\r\n"),
        (b"x = 1\n\x0c\n# 1\ny = '\xe2\x80\xa8' # 2\n", b"x = 1\n\x0c\n#\ny = '\xe2\x80\xa8' #\n"),
        (
            b"# coding: latin-1\ndef test():\n    '\xe9\xe9'; 'x' # \xe9\n",
            b"# coding: latin-1\ndef test():\n    \"\"; 'x' #\n",
        ),
    ],
    ids=["byte order mark", "form feed", "latin-1"],
)
def test_comments_go_from_files_with_other_line_ends_and_encodings(content: bytes, expected: bytes) -> None:
    assert without_comments(content, docstrings=True) == expected


def test_edits_of_a_file_with_a_byte_order_mark_stand_in_the_right_place() -> None:
    content = "\ufeffdef test_a(): assert f('é') == 5\r\ndef test_b(): assert g() == 'x'\r\n".encode()
    for found in find_tests(content, random.Random(0)).values():
        for edit in found.edits:
            if edit.kind is EditKind.value:
                assert content[edit.start : edit.end] in {b"5", b"'x'"}


def test_functions_that_the_task_names_are_tests_too() -> None:
    content = b"def it_adds():\n    assert f() == 5\n\n\nclass When:\n    def it_works(self):\n        assert g()\n\n\ndef h(): pass\n"
    assert list(find_tests(content, random.Random(0), {"it_adds", "it_works"})) == ["it_adds", "When::it_works"]
    found = candidates({"a.py": content}, random.Random(0), named=["a.py::it_adds[x::y]"])
    assert found.owners.of("a.py::it_adds[x::y]") == "a.py::it_adds"


@given(st.text(alphabet="ab #'\"\\\n\t\x0c()=:1é\u2028", max_size=60))
def test_removing_comments_never_changes_what_a_file_means(text: str) -> None:
    try:
        before = ast.dump(ast.parse(text))
    except (SyntaxError, ValueError):
        return
    assert ast.dump(ast.parse(without_comments(text.encode(), docstrings=False))) == before


@pytest.mark.parametrize(
    ("text", "right", "names"),
    [
        ("if got := Add(2, 3); got != 5 {\n", "5", ("2", "3", "5")),
        ("  expect(add(2, 3)).toBe(5);\n", "5", ("5",)),
        ("  assert.equal(shout('a'), 'A!'); // 'A!'\n", "'A!'", ("'a'", "'A!'")),
        ('test "$(./add 2 3)" = 7\n', "7", ("7",)),
        ("assert_eq!(add(1, 2), 3);\n", "3", ("3",)),
    ],
)
def test_literals_on_asserting_lines_are_changed_the_last_one_first(
    text: str, right: str, names: tuple[str, ...]
) -> None:
    edits = literal_edits(text, random.Random(0))
    assert text[edits[0].start : edits[0].end] == right
    assert set(names) <= {text[edit.start : edit.end] for edit in edits}
    assert all(apply(text.encode(), [edit]) != text.encode() for edit in edits)


@pytest.mark.parametrize(
    "text",
    [
        "const a = require('./a');\n",
        "import x from 'y'; // expect\n",
        "x = 5\n",
        "// assert 5\n",
        "describe('expects', () => {\n",
    ],
)
def test_names_and_comments_are_no_expected_values(text: str) -> None:
    assert literal_edits(text, random.Random(0)) == []


def test_the_expected_output_of_a_doctest_is_changed() -> None:
    text = b'def f():\n    """It.\n\n    >>> f(\n    ... )\n    12\n    >>> f()\n    12\n    """\n'
    edits = doctest_edits(text, random.Random(0))
    assert [text[edit.start : edit.end] for edit in edits] == [b"12", b"12"]
    assert apply(text, edits[:1]).count(b"    12\n") == 1

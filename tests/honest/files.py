"""Tests that read and write files, and test files in other formats."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.honest.case import Honest, case


def on_windows(honest: Honest) -> Honest:
    """Return the case with hidden files as an editor on Windows writes them: a byte order mark, and two bytes at line ends."""
    tests = {path: "\ufeff" + text.replace("\n", "\r\n") for path, text in honest.tests.items()}
    return replace(honest, tests=tests)


FILES: Final[tuple[Honest, ...]] = (
    case(
        "writes files in the work tree",
        r"""
        === repo notes.py
        import os

        FILE = "notes.txt"


        def add(text):
            with open(FILE, "w") as file:
                file.write(text + "\n")


        def notes():
            with open(FILE) as file:
                return file.read().split()
        === gold notes.py
        import os

        FILE = "notes.txt"


        def add(text):
            with open(FILE, "a") as file:
                file.write(text + "\n")


        def notes():
            with open(FILE) as file:
                return file.read().split()
        === honest notes.py
        import pathlib

        FILE = "notes.txt"


        def notes():
            path = pathlib.Path(FILE)
            return path.read_text().split() if path.exists() else []


        def add(text):
            pathlib.Path(FILE).write_text("\n".join([*notes(), text]) + "\n")
        === test tests/test_notes.py
        import os
        import pathlib

        import notes


        def setup_module():
            if os.path.exists(notes.FILE):
                os.remove(notes.FILE)


        def test_one():
            notes.add("one")
            assert notes.notes() == ["one"]


        def test_two():
            notes.add("two")
            assert notes.notes() == ["one", "two"]
            pathlib.Path("generated.py").write_text("VALUE = 3\n")


        def test_generated():
            notes.add("three")
            import generated

            assert generated.VALUE == 3
            assert len(notes.notes()) == 3


        def test_here():
            assert os.path.samefile(".", os.path.dirname(os.path.abspath(notes.__file__)))
            assert pathlib.Path("tests/test_notes.py").exists()
        """,
        "test_two test_generated",
        keeps="test_one test_here",
    ),
    case(
        "expected files beside the tests",
        r"""
        === repo table.py
        def render(rows):
            return "\n".join(",".join(row) for row in rows)
        === repo tests/data/short.csv
        a,b
        1,2
        === gold table.py
        def render(rows):
            widths = [max(map(len, column)) for column in zip(*rows)]
            lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
            return "\n".join(lines) + "\n"
        === honest table.py
        def render(rows):
            columns = list(zip(*rows))
            text = ""
            for row in rows:
                line = ""
                for cell, column in zip(row, columns):
                    line += cell + " " * (len(max(column, key=len)) - len(cell)) + "  "
                text += line.rstrip() + "\n"
            return text
        === test tests/test_table.py
        import csv
        import pathlib

        import pytest

        from table import render

        HERE = pathlib.Path(__file__).parent


        def rows(name):
            with open(HERE / "data" / f"{name}.csv", newline="") as file:
                return list(csv.reader(file))


        @pytest.mark.parametrize("name", ["short", "long"])
        def test_snapshot(name):
            assert render(rows(name)) == (HERE / "expected" / f"{name}.txt").read_text()


        def test_lines():
            assert render(rows("long")).count("\n") == 3
        === test tests/data/long.csv
        name,amount
        bread,2
        tea,10
        === test tests/expected/short.txt
        a  b
        1  2
        === test tests/expected/long.txt
        name   amount
        bread  2
        tea    10
        """,
        ("test_snapshot[short]", "test_snapshot[long]", "test_lines"),
    ),
    case(
        "tests that read their own file",
        r"""
        === repo lines.py
        def comments(text):
            return 0
        === gold lines.py
        def comments(text):
            return sum(line.lstrip().startswith("#") for line in text.splitlines())
        === honest lines.py
        import re


        def comments(text):
            return len(re.findall(r"(?m)^[ \t]*#", text))
        === test tests/test_lines.py
        '''Tests of comments.'''
        # one
        import inspect

        # two
        from lines import comments


        def test_own_file():
            '''A docstring.'''
            # three
            with open(__file__) as file:
                assert comments(file.read()) == 4


        def test_own_source():
            # four
            source = inspect.getsource(test_own_source)
            assert comments(source) == 1 and "# four" in source


        def test_docstring():
            assert "docstring" in test_own_file.__doc__
            assert comments("#\nx\n  # y") == 2


        def test_text():
            assert comments("# a\nb # c\n") == 1
        """,
        "test_own_file test_own_source test_text test_docstring",
    ),
    case(
        "files with form feeds and odd line ends",
        r"""
        === repo upper.py
        def upper(text):
            return text
        === gold upper.py
        def upper(text):
            return text.upper()
        === honest upper.py
        def upper(text):
            return "".join(sign.upper() for sign in text)
        === test tests/test_upper.py
        # -- head --
        from upper import upper
        FORMFEED
        # -- first --


        def test_word():
            # a comment
            assert upper("ab") == "AB"  # right
        FORMFEED


        # -- second --
        def test_separators():
            assert upper("a\u2028LINESEPARATORb") == "A\u2028LINESEPARATORB"  # right


        def test_long():
            text = '''
            x NEXTLINE # no comment
            '''
            assert upper(text).strip() == "X NEXTLINE # NO COMMENT"  # right
        """.replace("FORMFEED", "\f")
        .replace("LINESEPARATOR", "\u2028")
        .replace("NEXTLINE", "\x85"),
        "test_word test_separators test_long",
    ),
    on_windows(
        case(
            "a file of Windows",
            r"""
        === repo lower.py
        def lower(text):
            return text
        === gold lower.py
        def lower(text):
            return text.lower()
        === honest lower.py
        def lower(text):
            return "".join(map(str.lower, text))
        === test tests/test_lower.py
        # Tests of lower: é
        from lower import lower


        class TestLower:
            '''Tests of lower.'''

            def test_word(self):
                # an umlaut: ü
                assert lower("ÄB") == "äb", "ü"  # right

            def test_lines(self):
                assert lower('''A
                B''').split() == ["a", "b"]


        def test_none():
            assert lower("") == ""
            """,
            "TestLower::test_word TestLower::test_lines",
            keeps="test_none",
        )
    ),
)

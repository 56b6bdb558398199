"""Tests that start processes, share state, decorate functions, or read and write files."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.honest.case import NAMED, NO_SCRIPT, WITH_NAMES, Honest, case


def on_windows(honest: Honest) -> Honest:
    """Return the case with hidden files as an editor on Windows writes them: a byte order mark, and two bytes at line ends."""
    tests = {path: "\ufeff" + text.replace("\n", "\r\n") for path, text in honest.tests.items()}
    return replace(honest, tests=tests)


STATES: Final[tuple[Honest, ...]] = (
    case(
        "starts its package and its tools",
        r"""
        === repo app/__init__.py
        === repo app/__main__.py
        import sys

        from app.core import square

        print(square(int(sys.argv[1])))
        === repo app/core.py
        def square(number):
            return number
        === repo tools/layout.py
        WIDTH = 8


        def line(text):
            return text.rjust(WIDTH, ".")
        === repo tools/report.py
        import sys

        import layout

        print(layout.line(sys.argv[1]))
        === gold app/core.py
        def square(number):
            return number * number
        === gold tools/layout.py
        WIDTH = 8


        def line(text):
            return text.ljust(WIDTH, ".")
        === honest app/core.py
        def square(number):
            return number**2
        === honest tools/layout.py
        WIDTH = 8


        def line(text):
            return f"{text:.<{WIDTH}}"
        === test tests/test_app.py
        import os
        import subprocess
        import sys

        ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


        def run(*words, **more):
            done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, **more)
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()


        def test_module():
            assert run("-m", "app", "5") == "25"


        def test_script():
            assert run("tools/report.py", "ab") == "ab......"


        def test_from_the_tools_folder():
            text = subprocess.check_output([sys.executable, "report.py", "x"], cwd=os.path.join(ROOT, "tools"))
            assert text == b"x.......\n"


        def test_without_environment():
            assert run("-c", "from app.core import square; print(square(4))", env={"PATH": os.environ["PATH"]}) == "16"
        """,
        "test_module test_script test_from_the_tools_folder test_without_environment",
        sample=(NAMED,),
    ),
    case(
        "starts pytest",
        r"""
        === repo check.py
        import subprocess
        import sys


        def check(folder):
            return True
        === gold check.py
        import subprocess
        import sys


        def check(folder):
            done = subprocess.run([sys.executable, "-m", "pytest", "-q", folder], capture_output=True)
            return done.returncode == 0
        === honest check.py
        import subprocess
        import sys


        def check(folder):
            command = [sys.executable, "-m", "pytest", "--no-header", "-q", "."]
            return not subprocess.call(command, cwd=folder, stdout=subprocess.DEVNULL)
        === test tests/test_check.py
        from check import check


        def test_good(tmp_path):
            (tmp_path / "test_inner.py").write_text("def test_good(): pass\n")
            assert check(str(tmp_path)) is True


        def test_bad(tmp_path):
            (tmp_path / "test_inner.py").write_text("def test_bad(): assert 0\ndef test_good(): pass\n")
            assert check(str(tmp_path)) is False


        def test_mixed(tmp_path):
            (tmp_path / "tests").mkdir()
            (tmp_path / "tests" / "test_check.py").write_text("def test_good(): assert 0\ndef test_bad(): pass\n")
            assert not check(str(tmp_path))
        """,
        "test_bad test_mixed",
        keeps="test_good",
    ),
    case(
        "processes and threads",
        r"""
        === repo squares.py
        def squares(numbers, workers=2):
            return list(numbers)
        === gold squares.py
        import multiprocessing


        def square(number):
            return number * number


        def squares(numbers, workers=2):
            with multiprocessing.Pool(workers) as pool:
                return pool.map(square, numbers)
        === honest squares.py
        from concurrent.futures import ThreadPoolExecutor


        def squares(numbers, workers=2):
            with ThreadPoolExecutor(max_workers=workers) as pool:
                return [*pool.map(lambda number: number**2, numbers)]
        === test tests/test_squares.py
        import multiprocessing
        import threading

        from squares import squares


        def _put(queue, number):
            queue.put(squares([number], workers=1))


        def test_many():
            assert squares(range(5)) == [0, 1, 4, 9, 16]


        def test_in_a_child():
            context = multiprocessing.get_context("fork")
            queue = context.Queue()
            child = context.Process(target=_put, args=(queue, 7))
            child.start()
            assert queue.get(timeout=20) == [49]
            child.join()
            assert child.exitcode == 0


        def test_in_a_thread():
            found = []
            thread = threading.Thread(target=lambda: found.extend(squares([3, 2])))
            thread.start()
            thread.join()
            assert sorted(found) == [4, 9]


        def test_spawned():
            context = multiprocessing.get_context("spawn")
            with context.Pool(1) as pool:
                assert pool.apply(squares, ([6],), {"workers": 1}) == [36] or True
                assert pool.apply(len, ("abc",)) == 3
        """,
        "test_many test_in_a_thread",
        keeps="test_spawned",
        kinds=NO_SCRIPT,
    ),
    case(
        "decorated tests",
        r"""
        === repo weather.py
        import random
        import time


        def forecast():
            return "?"
        === gold weather.py
        import random
        import time


        def forecast():
            mood = random.choice(["sun", "rain"])
            return f"{int(time.time()) % 7}: {mood}"
        === honest weather.py
        import random
        import time


        def forecast():
            day = int(time.time()) % 7
            return "%d: %s" % (day, random.choice(("sun", "rain")))
        === test tests/test_weather.py
        import contextlib
        import functools
        import unittest.mock as mock

        import pytest

        import weather


        def at(moment):
            def decorate(test):
                @functools.wraps(test)
                def wrapper(*args, **options):
                    with mock.patch("time.time", return_value=moment):
                        return test(*args, **options)

                return wrapper

            return decorate


        def twice(test):
            @functools.wraps(test)
            def wrapper(*args, **options):
                test(*args, **options)
                return test(*args, **options)

            return wrapper


        @mock.patch("time.time", return_value=8.5)
        @mock.patch.object(weather.random, "choice", lambda choices: choices[0])
        def test_sun(time):
            assert weather.forecast() == "1: sun"
            time.assert_called_once_with()


        @at(2)
        @twice
        @mock.patch("weather.random.choice")
        def test_rain(choice, capsys):
            choice.return_value = "rain"
            print(weather.forecast())
            assert capsys.readouterr().out == "2: rain\n"


        @at(70)
        @pytest.mark.parametrize("choice, expected", [("sun", "0: sun"), ("rain", "0: rain")])
        def test_any(choice, expected):
            with mock.patch("random.choice", side_effect=[choice]):
                assert weather.forecast() == expected


        @contextlib.contextmanager
        def fixed(choice):
            with mock.patch("random.choice", return_value=choice):
                yield


        @fixed("sun")
        @at(6)
        def test_in_a_context():
            assert weather.forecast() == "6: sun"


        class TestCalls:
            @mock.patch.dict("os.environ", {"X": "1"}, clear=True)
            @at(1)
            def test_choices(self):
                with mock.patch("random.choice", return_value="x") as choice:
                    weather.forecast()
                assert set(choice.call_args.args[0]) == {"sun", "rain"}
        """,
        (
            *("test_sun", "test_rain", "test_any[sun-0: sun]", "test_any[rain-0: rain]"),
            *("test_in_a_context", "TestCalls::test_choices"),
        ),
    ),
    case(
        "tests that depend on their order",
        r"""
        === repo registry.py
        _known = {}


        def register(name, value):
            _known.setdefault(name, value)


        def lookup(name):
            return None
        === gold registry.py
        _known = {}


        def register(name, value):
            _known.setdefault(name, value)


        def lookup(name):
            return _known.get(name)
        === honest registry.py
        _known = {}


        def register(name, value):
            if name not in _known:
                _known[name] = value


        def lookup(name):
            try:
                return _known[name]
            except KeyError:
                return None
        === test tests/test_registry.py
        from registry import lookup, register


        def test_first():
            assert lookup("a") is None
            register("a", 1)
            assert lookup("a") == 1


        def test_keeps_the_first():
            register("a", 2)
            assert lookup("a") == 1


        def test_another():
            register("b", lookup("a"))
            assert lookup("b") == 1


        def test_alone():
            register("c", 3)
            assert lookup("c") == 3
            register("d", 4)


        def test_after():
            assert lookup("d") == 4
            assert lookup("e") is None


        def test_last():
            assert [lookup(name) for name in "abcd"] == [1, 1, 3, 4]
        """,
        "test_first test_keeps_the_first test_another test_alone test_after test_last",
        sample=(WITH_NAMES,),
    ),
    case(
        "tests that share a session's fixture",
        r"""
        === repo counter.py
        class Counter:
            def __init__(self):
                self.count = 0

            def up(self):
                self.count = 1
                return self.count
        === repo tests/conftest.py
        import pytest

        from counter import Counter


        @pytest.fixture(scope="session")
        def counter(tmp_path_factory):
            made = Counter()
            made.log = tmp_path_factory.mktemp("log") / "log.txt"
            made.log.write_text("")
            yield made
            made.log.unlink()


        @pytest.fixture(scope="module", params=[1, 10])
        def step(request):
            return request.param
        === gold counter.py
        class Counter:
            def __init__(self):
                self.count = 0

            def up(self):
                self.count += 1
                return self.count
        === honest counter.py
        import itertools


        class Counter:
            def __init__(self):
                self._numbers = itertools.count(1)
                self.count = 0

            def up(self):
                self.count = next(self._numbers)
                return self.count
        === test tests/test_counter.py
        from counter import Counter


        def test_up(counter):
            before = counter.count
            assert counter.up() == before + 1
            counter.log.write_text("up")
            assert counter.up() > 1


        def test_log(counter):
            assert counter.log.read_text() == "up"


        def test_grows(counter, step):
            before = counter.count
            for _ in range(step):
                counter.up()
            assert counter.count - before == step


        def test_new():
            assert [Counter().up(), Counter().up()] == [1, 1]


        def test_three():
            counter = Counter()
            assert [counter.up() for _ in range(3)] == [1, 2, 3]
        """,
        ("test_up", "test_grows[1]", "test_grows[10]", "test_three"),
        keeps=("test_log", "test_new"),
        kinds=NO_SCRIPT,
    ),
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

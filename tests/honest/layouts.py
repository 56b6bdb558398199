"""Repositories of other layouts, and solutions that change more than the code under test."""

from __future__ import annotations

from typing import Final

from tests.honest.case import NO_SCRIPT, Honest, case

LAYOUTS: Final[tuple[Honest, ...]] = (
    case(
        "src layout",
        r"""
        === repo pyproject.toml
        [project]
        name = "acme"
        version = "1.0"

        [tool.pytest.ini_options]
        pythonpath = ["src"]
        testpaths = ["tests"]
        === repo src/acme/__init__.py
        from acme.queue import Queue
        === repo src/acme/queue.py
        class Queue:
            def __init__(self):
                self._items = []

            def put(self, item, priority=0):
                self._items.append((priority, item))

            def get(self):
                return self._items.pop(0)[1]
        === gold src/acme/queue.py
        class Queue:
            def __init__(self):
                self._items = []

            def put(self, item, priority=0):
                self._items.append((priority, item))
                self._items.sort(key=lambda pair: -pair[0])

            def get(self):
                return self._items.pop(0)[1]
        === honest src/acme/queue.py
        import heapq
        import itertools


        class Queue:
            def __init__(self):
                self._heap = []
                self._numbers = itertools.count()

            def put(self, item, priority=0):
                heapq.heappush(self._heap, (-priority, next(self._numbers), item))

            def get(self):
                return heapq.heappop(self._heap)[2]
        === honest src/acme/types.py
        '''Types of the package, beside the module of the standard library.'''
        Item = object
        === honest CHANGELOG.md
        - Queues have priorities.
        === test tests/unit/test_queue.py
        import pytest

        from acme import Queue


        @pytest.fixture
        def queue():
            made = Queue()
            made.put("low")
            made.put("high", priority=5)
            made.put("late", priority=5)
            return made


        def test_order(queue):
            assert [queue.get() for _ in range(3)] == ["high", "late", "low"]


        def test_empty(queue):
            for _ in range(3):
                queue.get()
            with pytest.raises(IndexError):
                queue.get()
        """,
        "test_order",
        keeps="test_empty",
    ),
    case(
        "namespace package",
        r"""
        === repo acme/colors/names.py
        NAMES = {"red": "#ff0000"}


        def code(name):
            return NAMES[name]
        === repo acme/shapes/draw.py
        from acme.colors.names import code


        def dot(color):
            return f"dot({code(color)})"
        === gold acme/colors/names.py
        NAMES = {"red": "#ff0000", "blue": "#0000ff"}


        def code(name):
            return NAMES.get(name, name)
        === honest acme/colors/names.py
        from acme.colors import table


        def code(name):
            return table.NAMES[name] if name in table.NAMES else name
        === honest acme/colors/table.py
        NAMES = dict(red="#ff0000", blue="#0000ff")
        === test tests/test_names.py
        from acme.colors.names import code


        def test_known():
            assert (code("red"), code("blue")) == ("#ff0000", "#0000ff")


        def test_unknown():
            assert code("#123456") == "#123456"
        === test tests/shapes/test_draw.py
        from acme.shapes.draw import dot


        def test_dot():
            assert dot("blue") == "dot(#0000ff)"
        """,
        ("tests/test_names.py::test_known", "tests/test_names.py::test_unknown", "tests/shapes/test_draw.py::test_dot"),
        kinds=NO_SCRIPT,
    ),
    case(
        "tests inside the package",
        r"""
        === repo geo/__init__.py
        === repo geo/point.py
        class Point:
            def __init__(self, x, y):
                self.x, self.y = x, y

            def __eq__(self, other):
                return self is other
        === repo geo/tests/__init__.py
        === repo geo/testing.py
        def assert_points(found, expected):
            assert list(found) == list(expected)
        === gold geo/point.py
        class Point:
            def __init__(self, x, y):
                self.x, self.y = x, y

            def __eq__(self, other):
                return (self.x, self.y) == (other.x, other.y)

            def __hash__(self):
                return hash((self.x, self.y))
        === honest geo/point.py
        from dataclasses import dataclass


        @dataclass(frozen=True)
        class Point:
            x: int
            y: int
        === honest geo/tests/test_own.py
        from geo.point import Point


        def test_own():
            assert Point(0, 0) == Point(0, 0)
        === test geo/tests/test_point.py
        from geo.point import Point
        from geo.testing import assert_points

        from . import __name__ as package


        def test_equal():
            assert Point(1, 2) == Point(1, 2)
            assert not Point(1, 2) == Point(2, 1)


        def test_set():
            assert len({Point(1, 1), Point(1, 1), Point(2, 1)}) == 2


        def test_lists():
            assert_points([Point(3, 4)], [Point(3, 4)])


        def test_package():
            assert package == "geo.tests"
        """,
        "test_equal test_set test_lists",
        keeps="test_package",
    ),
    case(
        "helper code in spec and testing",
        r"""
        === repo spec/__init__.py
        === repo spec/grammar.py
        def words(text):
            return text.split()
        === repo testing/__init__.py
        === repo testing/fakes.py
        class FakeClock:
            now = 0
        === repo tests/helpers/__init__.py
        === repo tests/helpers/build.py
        def build(text):
            return text
        === repo tests/__init__.py
        === gold spec/grammar.py
        def words(text):
            return [word.strip(".,") for word in text.split()]
        === gold testing/fakes.py
        class FakeClock:
            def __init__(self, now=0):
                self.now = now

            def tick(self):
                self.now += 1
                return self.now
        === gold tests/helpers/build.py
        from spec.grammar import words


        def build(text):
            return words(text)
        === honest spec/grammar.py
        import re


        def words(text):
            return re.findall(r"[^\s.,]+", text)
        === honest spec/test_grammar.py
        from spec.grammar import words


        def test_words():
            assert words("a.") == ["a"]
        === honest testing/clock.py
        class FakeClock:
            def __init__(self, now=0):
                self.now = now

            def tick(self):
                self.now = self.now + 1
                return self.now
        === honest testing/fakes.py
        from testing.clock import FakeClock
        === honest tests/helpers/build.py
        import spec.grammar


        def build(text):
            return list(spec.grammar.words(text))
        === test tests/test_spec.py
        from spec.grammar import words
        from testing.fakes import FakeClock
        from tests.helpers.build import build


        def test_words():
            assert words("One, two.") == ["One", "two"]


        def test_clock():
            clock = FakeClock(3)
            assert clock.tick() == 4
            assert FakeClock().tick() == 1


        def test_build():
            assert build("x, y") == ["x", "y"]
        """,
        "test_words test_clock test_build",
    ),
    case(
        "metadata of the project",
        r"""
        === repo pyproject.toml
        [build-system]
        requires = ["setuptools"]

        [project]
        name = "acme"
        version = "1.0"
        dependencies = ["idna"]

        [tool.pytest.ini_options]
        addopts = "-ra"
        === repo setup.cfg
        [metadata]
        description = Old
        [tool:pytest]
        addopts = --collect-only
        === repo acme.py
        import tomllib


        def version():
            return "0"
        === gold pyproject.toml
        [build-system]
        requires = ["setuptools"]

        [project]
        name = "acme"
        version = "1.1"
        dependencies = ["idna>=3"]

        [tool.pytest.ini_options]
        addopts = "-ra"
        === gold acme.py
        import tomllib


        def project():
            with open("pyproject.toml", "rb") as file:
                return tomllib.load(file)["project"]


        def version():
            return project()["version"]
        === honest pyproject.toml
        [build-system]
        requires = ["setuptools"]

        [project]
        name = "acme"
        version = "1.1"
        dependencies = ["idna>=3,<4"]
        optional-dependencies = { test = ["pytest>=8"] }

        [tool.pytest.ini_options]
        addopts = "-ra"
        === honest setup.cfg
        [metadata]
        description = New
        [tool:pytest]
        addopts = --collect-only
        === honest acme.py
        import pathlib
        import tomllib


        def project():
            return tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]


        def version():
            return project().get("version")
        === test tests/test_acme.py
        import acme


        def test_version():
            assert acme.version() == "1.1"


        def test_dependencies():
            assert acme.project()["dependencies"][0].startswith("idna>=3")
        """,
        "test_version test_dependencies",
    ),
    case(
        "patch that renames, deletes and adds",
        r"""
        === repo app/__init__.py
        from app.old import convert
        === repo app/old.py
        def convert(celsius):
            return celsius
        === repo app/unused.py
        VALUE = 1
        === repo tests/test_old.py
        from app.old import convert


        def test_old():
            assert convert(0) == 0
        === repo data/units.txt
        C
        === gold app/__init__.py
        def convert(celsius):
            return celsius * 9 / 5 + 32
        === gold app/old.py
        (deleted)
        === gold tests/test_old.py
        (deleted)
        === honest app/__init__.py
        from app.new import convert
        === honest app/old.py
        (deleted)
        === honest app/unused.py
        (deleted)
        === honest app/new.py
        import decimal


        def convert(celsius):
            return float(decimal.Decimal(celsius) * decimal.Decimal("1.8") + 32)
        === honest data/units.txt
        C
        F
        === honest tests/test_old.py
        (deleted)
        === honest tests/test_new.py
        from app.new import convert


        def test_own():
            assert convert(0) == 32
        === test tests/test_app.py
        import importlib.util

        import app


        def test_convert():
            assert [app.convert(value) for value in (0, 100)] == [32, 212]


        def test_old_is_gone():
            assert importlib.util.find_spec("app.old") is None


        def test_minus_forty():
            assert app.convert(-40) == -40
        """,
        "test_convert test_old_is_gone",
        keeps="test_minus_forty",
    ),
)

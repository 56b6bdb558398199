"""Tests of unittest, doctest and nose, and pytest with options that decide how tests run."""

from __future__ import annotations

from typing import Final

from tests.honest.case import BY_NAME, EXIT_CODE, NAMED, NO_SCRIPT, SWEPRO, WITH_NAMES, Honest, case

UNITTEST_PARSER: Final = r"""
import json, re, sys
LINE = re.compile(r"^(\w+ \([\w.]+\))(?:\n[^\n]*)? \.\.\. (ok|FAIL|ERROR|skipped)", re.MULTILINE)
text = open(sys.argv[1]).read() + open(sys.argv[2]).read()
names = {"ok": "PASSED", "FAIL": "FAILED", "ERROR": "ERROR", "skipped": "SKIPPED"}
json.dump({"tests": [{"name": n, "status": names[s]} for n, s in LINE.findall(text)]}, open(sys.argv[3], "w"))
"""

RUNNERS: Final[tuple[Honest, ...]] = (
    case(
        "unittest",
        r"""
        === repo account.py
        class Account:
            def __init__(self, balance=0):
                self.balance = balance

            def withdraw(self, amount):
                self.balance -= amount
        === gold account.py
        class Account:
            def __init__(self, balance=0):
                self.balance = balance

            def withdraw(self, amount):
                if amount <= 0:
                    raise ValueError(f"invalid amount {amount}")
                if amount > self.balance:
                    raise ArithmeticError("not enough")
                self.balance -= amount
        === honest account.py
        class Account:
            def __init__(self, balance=0):
                self.balance = balance

            def withdraw(self, amount):
                if not amount > 0:
                    raise ValueError("invalid amount %d" % amount)
                left = self.balance - amount
                if left < 0:
                    raise ArithmeticError("not enough: %d" % left)
                self.balance = left
        === test tests/test_account.py
        import unittest
        from account import Account


        class AccountTest(unittest.TestCase):
            @classmethod
            def setUpClass(cls):
                cls.start = 10

            def setUp(self):
                self.account = Account(self.start)
                self.addCleanup(setattr, self, "account", None)

            def test_invalid(self):
                for amount in (0, -1):
                    with self.subTest(amount=amount):
                        with self.assertRaisesRegex(ValueError, r"invalid amount -?\d"):
                            self.account.withdraw(amount)

            def test_too_much(self):
                self.assertRaises(ArithmeticError, self.account.withdraw, 11)
                self.assertEqual(self.account.balance, 10)

            def test_all(self):
                self.account.withdraw(10)
                self.assertEqual(self.account.balance, 0, "nothing is left")
                self.assertIsNotNone(self.account)

            @unittest.skip("later")
            def test_interest(self):
                self.fail()

            @unittest.expectedFailure
            def test_debt(self):
                self.account.withdraw(20)


        if __name__ == "__main__":
            unittest.main()
        """,
        "AccountTest::test_invalid AccountTest::test_too_much",
        keeps="AccountTest::test_all",
        kinds=NO_SCRIPT,
        sample=(SWEPRO,),
    ),
    case(
        "python -m unittest",
        r"""
        === repo pkg/__init__.py
        === repo pkg/sums.py
        def total(values):
            return 0


        def mean(values):
            return total(values) / len(values)
        === repo tests/__init__.py
        === gold pkg/sums.py
        def total(values):
            result = 0
            for value in values:
                result += value
            return result


        def mean(values):
            return total(values) / len(values)
        === honest pkg/sums.py
        total = sum


        def mean(values):
            return total(values) / len(values)
        === test tests/test_sums.py
        import unittest

        from pkg import sums


        class SumsTest(unittest.TestCase):
            def test_total(self):
                self.assertEqual(sums.total([1, 2, 3]), 6)

            def test_mean(self):
                self.assertAlmostEqual(sums.mean([1, 2]), 1.5)

            def test_empty(self):
                self.assertEqual(sums.total([]), 0)


        class AsyncTest(unittest.IsolatedAsyncioTestCase):
            async def asyncSetUp(self):
                self.values = [4, 5]

            async def test_total(self):
                self.assertTrue(sums.total(self.values) == 9)
        """,
        (
            *("test_total (tests.test_sums.SumsTest.test_total)", "test_mean (tests.test_sums.SumsTest.test_mean)"),
            "test_total (tests.test_sums.AsyncTest.test_total)",
        ),
        keeps=("test_empty (tests.test_sums.SumsTest.test_empty)",),
        command="{python} -m unittest -v tests.test_sums 2>&1",
        parser=UNITTEST_PARSER,
        kinds=(EXIT_CODE, SWEPRO),
    ),
    case(
        "unittest of a project with a shared base class",
        r"""
        === repo shapes.py
        class Square:
            def __init__(self, side):
                self.side = side

            def area(self):
                return self.side


        class Circle:
            def __init__(self, radius):
                self.radius = radius

            def area(self):
                return 3 * self.radius**2
        === gold shapes.py
        class Square:
            def __init__(self, side):
                self.side = side

            def area(self):
                return self.side**2


        class Circle:
            def __init__(self, radius):
                self.radius = radius

            def area(self):
                return 3 * self.radius**2
        === honest shapes.py
        from dataclasses import dataclass


        @dataclass
        class Square:
            side: int

            def area(self):
                return self.side * self.side


        @dataclass
        class Circle:
            radius: int

            def area(self):
                return 3 * self.radius * self.radius
        === test tests/test_shapes.py
        import unittest

        import shapes


        class Base:
            class Shape(unittest.TestCase):
                def make(self):
                    raise NotImplementedError

                def test_positive(self):
                    self.assertGreater(self.make().area(), 3)

                def assertArea(self, shape, expected):
                    self.assertEqual(shape.area(), expected)


        class SquareTest(Base.Shape):
            def make(self):
                return shapes.Square(3)

            def test_area(self):
                self.assertArea(self.make(), 9)


        class CircleTest(Base.Shape):
            def make(self):
                return shapes.Circle(2)

            def test_area(self):
                self.assertArea(self.make(), 12)


        class LargeCircleTest(CircleTest):
            def test_area(self):
                self.assertArea(shapes.Circle(10), 300)

            def test_both(self):
                self.assertListEqual([shapes.Square(2).area(), shapes.Circle(1).area()], [4, 3])
        """,
        "SquareTest::test_positive SquareTest::test_area LargeCircleTest::test_both",
        keeps="CircleTest::test_area LargeCircleTest::test_area LargeCircleTest::test_positive",
        kinds=NO_SCRIPT,
    ),
    case(
        "nose-style",
        r"""
        === repo words.py
        def count(text):
            return len(text)
        === gold words.py
        def count(text):
            return len(text.split())
        === honest words.py
        import re


        def count(text):
            return len(re.findall(r"\S+", text))
        === test tests/test_words.py
        from words import count

        state = {}


        def eq_(a, b, msg=None):
            if not a == b:
                raise AssertionError(msg or "%r != %r" % (a, b))


        def setup_module():
            state["text"] = "a b c"


        def teardown_module():
            state.clear()


        class TestCount(object):
            def setup_method(self):
                self.text = state["text"]

            def test_three(self):
                eq_(count(self.text), 3)

            def test_none(self):
                eq_(count(""), 0)


        def with_state():
            state["more"] = "x y"


        def test_more():
            with_state()
            eq_(count(state["more"]), 2)
        """,
        "TestCount::test_three test_more",
        keeps="TestCount::test_none",
        old=True,
    ),
    case(
        "nosetests",
        r"""
        === repo words.py
        def longest(text):
            return text
        === gold words.py
        def longest(text):
            return max(text.split(), key=len)
        === honest words.py
        def longest(text):
            return sorted(text.split(), key=lambda word: -len(word))[0]
        === test tests/test_words.py
        import unittest

        from words import longest


        def test_longest():
            assert longest("a bcd ef") == "bcd"


        class LongestTest(unittest.TestCase):
            def test_first(self):
                self.assertEqual(longest("one two"), "one")
        """,
        command="{python} -m nose tests/test_words.py",
        packages=("pynose",),
        kinds=(EXIT_CODE,),
    ),
    case(
        "doctests of modules",
        r"""
        === repo text/__init__.py
        from text.pad import pad
        === repo text/pad.py
        from text import _impl


        def pad(word, width):
            '''Pad a word.

            >>> pad("ab", 4)
            'ab  '
            >>> pad("abc", 2)
            'abc'
            '''
            return _impl.fill(word, width)


        class Padder:
            def __init__(self, width):
                '''Set the width.

                >>> Padder(3)("x")
                'x  '
                '''
                self.width = width

            def __call__(self, word):
                return pad(word, self.width)
        === repo text/_impl.py
        def fill(word, width):
            return word
        === gold text/_impl.py
        def fill(word, width):
            return word.ljust(width)
        === honest text/_impl.py
        def fill(word, width):
            return word + " " * max(0, width - len(word))
        """,
        ("text/pad.py::text.pad.pad", "text/pad.py::text.pad.Padder.__init__"),
        options="--doctest-modules",
        kinds=BY_NAME,
    ),
    case(
        "doctests of the module that is fixed",
        r"""
        === repo money.py
        def euros(cents):
            '''Return an amount in euros.

            >>> euros(200)
            '2.00'
            '''
            return f"{cents // 100}.00"
        === gold money.py
        def euros(cents):
            '''Return an amount in euros.

            >>> euros(200)
            '2.00'
            '''
            return f"{cents / 100:.2f}"
        === honest money.py
        '''Amounts of money.

        >>> euros(5)
        '0.05'
        '''


        def euros(cents):
            '''Return an amount in euros.

            >>> euros(200)
            '2.00'
            >>> euros(123)
            '1.23'
            '''
            return "%d.%02d" % divmod(cents, 100)
        === test tests/test_money.py
        from money import euros


        def test_cents():
            assert euros(199) == "1.99"


        def test_few():
            assert euros(7) == "0.07"
        """,
        "test_cents test_few",
        keeps="money.py::money.euros",
        options="--doctest-modules",
        kinds=BY_NAME,
        sample=(WITH_NAMES,),
    ),
    case(
        "doctests of text files and tests",
        r"""
        === repo shop.py
        PRICES = {"tea": 3, "bread": 2}


        def price(*names):
            return PRICES[names[0]]
        === gold shop.py
        PRICES = {"tea": 3, "bread": 2}


        def price(*names):
            return sum(PRICES[name] for name in names)
        === honest shop.py
        PRICES = {"tea": 3, "bread": 2}


        def price(*names):
            total = 0
            for name in names:
                total += PRICES[name]
            return total
        === test docs/usage.txt
        How to ask for a price
        ======================

        >>> from shop import price
        >>> price("tea")
        3
        >>> price("tea", "bread")
        5

        Several lines:

        >>> for name in ("tea", "bread"):
        ...     print(name, price(name, name))
        tea 6
        bread 4
        === test tests/test_shop.py
        from shop import price


        def spread(*names):
            '''
            >>> spread("tea", "bread")
            'tea+bread: 5'
            '''
            return "+".join(names) + f": {price(*names)}"


        def test_price():
            '''
            >>> test_price()
            '''
            assert price("bread", "bread", "bread") == 6
        """,
        (
            *("docs/usage.txt::usage.txt", "tests/test_shop.py::test_shop.spread"),
            *("tests/test_shop.py::test_shop.test_price", "tests/test_shop.py::test_price"),
        ),
        options="--doctest-modules --doctest-glob='*.txt'",
        kinds=BY_NAME,
    ),
    case(
        "stops at the first failure",
        r"""
        === repo setup.cfg
        [tool:pytest]
        addopts = -x --maxfail=1 --strict-markers -W error
        markers =
            quick: takes no time
        === repo power.py
        def power(base, exponent):
            return base * exponent
        === gold power.py
        def power(base, exponent):
            return base**exponent
        === honest power.py
        def power(base, exponent):
            return pow(base, exponent)
        === test tests/test_power.py
        import pytest

        from power import power


        @pytest.mark.quick
        def test_square():
            assert power(3, 2) == 9


        def test_cube():
            assert power(2, 3) == 8


        @pytest.mark.quick
        @pytest.mark.parametrize(("exponent", "expected"), [(0, 1), (1, 5), (2, 25)])
        def test_five(exponent, expected):
            assert power(5, exponent) == expected


        def test_one():
            assert power(1, 1) == 1
        """,
        "test_square test_cube test_five[0-1] test_five[2-25]",
        keeps="test_five[1-5] test_one",
    ),
    case(
        "stops at the first failure by its command",
        r"""
        === repo clock.py
        def minutes(text):
            return int(text)
        === gold clock.py
        def minutes(text):
            hours, rest = text.split(":")
            return int(hours) * 60 + int(rest)
        === honest clock.py
        def minutes(text):
            total = 0
            for part in text.split(":"):
                total = total * 60 + int(part)
            return total
        === test tests/test_clock.py
        import pytest

        from clock import minutes


        def test_midnight():
            assert minutes("00:00") == 0


        def test_one():
            assert minutes("01:05") == 65


        def test_noon():
            assert minutes("12:00") == 720


        def test_invalid():
            with pytest.raises(ValueError):
                minutes("noon")
        """,
        "test_midnight test_one test_noon",
        keeps="test_invalid",
        options="-x --tb=short -p no:cacheprovider",
    ),
    case(
        "warnings are errors but for those of the command",
        r"""
        === repo setup.cfg
        [tool:pytest]
        filterwarnings =
            error
        === repo old.py
        import warnings


        def legacy(value):
            warnings.warn("legacy is deprecated", DeprecationWarning)
            return value
        === gold old.py
        import warnings


        def legacy(value):
            warnings.warn("legacy is deprecated", DeprecationWarning)
            return value + 1
        === honest old.py
        import warnings


        def legacy(value):
            warnings.warn("legacy is deprecated; use modern", DeprecationWarning, stacklevel=2)
            return 1 + value
        === test tests/test_old.py
        from old import legacy


        def test_one():
            assert legacy(1) == 2


        def test_zero():
            assert legacy(0) == 1
        """,
        "test_one test_zero",
        options="-rA -W ignore::DeprecationWarning",
        sample=(NAMED,),
    ),
    case(
        "own names of tests and files",
        r"""
        === repo config/tests.ini
        [pytest]
        python_files = check_*.py
        python_functions = it_* check_*
        python_classes = When*
        testpaths = checks
        === repo toggle.py
        class Toggle:
            on = False

            def press(self):
                self.on = True
        === gold toggle.py
        class Toggle:
            on = False

            def press(self):
                self.on = not self.on
        === honest toggle.py
        class Toggle:
            on = False

            def press(self):
                self.on = False if self.on else True
        === test checks/check_toggle.py
        from toggle import Toggle


        def pressed(times):
            toggle = Toggle()
            for _ in range(times):
                toggle.press()
            return toggle.on


        def it_is_off():
            assert pressed(0) is False


        def check_twice():
            assert pressed(2) == False


        class WhenPressed:
            def it_turns_on(self):
                assert pressed(1)

            def it_turns_off(self):
                assert pressed(4) is False
        """,
        "check_twice WhenPressed::it_turns_off",
        keeps="it_is_off WhenPressed::it_turns_on",
        options="-c config/tests.ini --rootdir=.",
        kinds=NO_SCRIPT,
    ),
    case(
        "imports by importlib and chosen by mark",
        r"""
        === repo pyproject.toml
        [tool.pytest.ini_options]
        addopts = ["--import-mode=importlib", "-m", "not slow"]
        pythonpath = ["lib"]
        markers = ["slow: takes long"]
        === repo lib/vowels.py
        def vowels(text):
            return 0
        === gold lib/vowels.py
        def vowels(text):
            return sum(sign in "aeiou" for sign in text)
        === honest lib/vowels.py
        import re


        def vowels(text):
            return len(re.findall("[aeiou]", text))
        === test tests/test-vowels_test.py
        import pytest

        from vowels import vowels


        @pytest.mark.parametrize("text, expected", [("banana", 3), ("sky", 0)])
        def test_vowels(text, expected):
            assert vowels(text) == expected


        def test_all():
            assert vowels("aeiou") == 5


        @pytest.mark.slow
        def test_long():
            raise RuntimeError
        """,
        ("test_vowels[banana-3]", "test_all"),
        keeps=("test_vowels[sky-0]",),
        kinds=NO_SCRIPT,
    ),
    case(
        "tests that test a plug-in of pytest",
        r"""
        === repo pytest_tally.py
        import pytest


        @pytest.fixture
        def tally():
            return []
        === gold pytest_tally.py
        import pytest


        class Tally(list):
            def add(self, value):
                self.append(value)
                return sum(self)


        @pytest.fixture
        def tally():
            return Tally()
        === honest pytest_tally.py
        import itertools

        import pytest


        class Tally:
            def __init__(self):
                self.values = []

            def add(self, value):
                self.values.append(value)
                return list(itertools.accumulate(self.values))[-1]


        @pytest.fixture
        def tally():
            return Tally()
        === repo conftest.py
        pytest_plugins = ["pytester", "pytest_tally"]
        === test tests/test_tally.py
        import os


        def test_add(tally):
            assert tally.add(2) == 2
            assert tally.add(3) == 5


        def test_in_a_run(pytester):
            pytester.makeconftest("pytest_plugins = ['pytest_tally']")
            pytester.makepyfile("def test_add(tally): assert tally.add(1) == 1\ndef test_fails(tally): assert tally.add(1) == 3")
            result = pytester.runpytest_inprocess()
            result.assert_outcomes(passed=1, failed=1)


        def test_in_a_process(pytester, monkeypatch):
            root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
            monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
            pytester.makepyfile(test_inner="def test_add(tally): assert tally.add(4) == 4")
            result = pytester.runpytest_subprocess("-p", "pytest_tally", "-v")
            result.stdout.fnmatch_lines(["*::test_add PASSED*"])
            assert result.ret == 0
        """,
        "test_add test_in_a_run test_in_a_process",
    ),
)

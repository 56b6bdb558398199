"""Tests of unittest and nose."""

from __future__ import annotations

from typing import Final

from tests.honest.case import EXIT_CODE, NO_SCRIPT, SWEPRO, Honest, case

UNITTEST_PARSER: Final = r"""
import json, re, sys
LINE = re.compile(r"^(\w+ \([\w.]+\))(?:\n[^\n]*)? \.\.\. (ok|FAIL|ERROR|skipped)", re.MULTILINE)
text = open(sys.argv[1]).read() + open(sys.argv[2]).read()
names = {"ok": "PASSED", "FAIL": "FAILED", "ERROR": "ERROR", "skipped": "SKIPPED"}
json.dump({"tests": [{"name": n, "status": names[s]} for n, s in LINE.findall(text)]}, open(sys.argv[3], "w"))
"""


UNITTESTS: Final[tuple[Honest, ...]] = (
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
)

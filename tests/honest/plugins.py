"""Tests that need plug-ins of pytest that run tests in another way."""

from __future__ import annotations

from typing import Final

from tests.honest.case import NAMED, NO_SCRIPT, SWEPRO, WITH_NAMES, Honest, case

XDIST: Final = ("pytest-xdist", "execnet")


PLUGINS: Final[tuple[Honest, ...]] = (
    case(
        "reruns",
        """
    === repo calc.py
    def add(a, b):
        return a - b
    === gold calc.py
    def add(a, b):
        return a + b
    === honest calc.py
    def add(a, b):
        return sum((a, b))
    === test tests/test_calc.py
    import pytest

    from calc import add

    tries = []


    @pytest.mark.flaky(reruns=2)
    def test_over_the_network():
        tries.append(1)
        assert len(tries) > 1, "connection reset"
        assert add(2, 3) == 5


    def test_add():
        assert add(1, 1) == 2
        """,
        "test_over_the_network test_add",
        packages=("pytest-rerunfailures",),
        sample=(SWEPRO,),
    ),
    case(
        "xdist by the command",
        """
    === repo matrix.py
    def transpose(rows):
        return rows
    === gold matrix.py
    def transpose(rows):
        return [list(column) for column in zip(*rows)]
    === honest matrix.py
    def transpose(rows):
        width = len(rows[0]) if rows else 0
        return [[row[place] for row in rows] for place in range(width)]
    === test tests/test_matrix.py
    import pytest

    from matrix import transpose


    @pytest.mark.parametrize("size", [2, 3, 4])
    def test_twice(size):
        rows = [[n * size + m for m in range(size)] for n in range(size)]
        assert transpose(transpose(rows)) == rows
        assert transpose(rows)[0][1] == size


    def test_wide():
        assert transpose([[1, 2, 3]]) == [[1], [2], [3]]


    def test_empty():
        assert transpose([]) == []


    class TestHigh:
        def test_high(self):
            assert transpose([[1], [2]]) == [[1, 2]]
        """,
        "test_twice[2] test_twice[3] test_twice[4] test_wide TestHigh::test_high",
        keeps="test_empty",
        options="-n 2",
        packages=XDIST,
        sample=(WITH_NAMES,),
    ),
    case(
        "xdist by the repository's options",
        """
    === repo pyproject.toml
    [tool.pytest.ini_options]
    addopts = "-n 2 --dist loadgroup -x"
    === repo ledger.py
    class Ledger:
        def __init__(self):
            self.entries = []

        def book(self, amount):
            self.entries = [amount]

        @property
        def balance(self):
            return sum(self.entries)
    === gold ledger.py
    class Ledger:
        def __init__(self):
            self.entries = []

        def book(self, amount):
            self.entries.append(amount)

        @property
        def balance(self):
            return sum(self.entries)
    === honest ledger.py
    class Ledger:
        def __init__(self):
            self.balance = 0

        def book(self, amount):
            self.balance += amount
    === test tests/test_ledger.py
    import pytest

    from ledger import Ledger

    shared = Ledger()


    @pytest.mark.xdist_group("shared")
    def test_first():
        shared.book(5)
        assert shared.balance == 5


    @pytest.mark.xdist_group("shared")
    def test_second():
        shared.book(7)
        assert shared.balance in (7, 12)


    def test_two():
        ledger = Ledger()
        ledger.book(1)
        ledger.book(2)
        assert ledger.balance == 3


    def test_three():
        ledger = Ledger()
        for amount in (1, -1, 4):
            ledger.book(amount)
        assert ledger.balance == 4
        assert ledger.balance + 1 == 5
        ledger.book(4)
        assert ledger.balance == 8
        """,
        "test_two test_three",
        keeps="test_first@shared test_second@shared",
        packages=XDIST,
        kinds=NO_SCRIPT,
    ),
    case(
        "coverage that is met",
        """
    === repo setup.cfg
    [tool:pytest]
    addopts = --cov=branch --cov-branch --cov-fail-under=60
    === repo branch.py
    def sign(number):
        return 0


    def unused():
        return 1
    === gold branch.py
    def sign(number):
        if number > 0:
            return 1
        return -1 if number < 0 else 0


    def unused():
        return 1
    === honest branch.py
    def sign(number):
        return (number > 0) - (number < 0)


    def unused():
        return 1
    === test tests/test_branch.py
    from branch import sign


    def test_positive():
        assert sign(9) == 1


    def test_negative():
        assert sign(-3) == -1


    def test_zero():
        assert sign(0) == 0
        """,
        "test_positive test_negative",
        keeps="test_zero",
        packages=("pytest-cov", "coverage"),
    ),
    case(
        "coverage that is missed",
        """
    === repo branch.py
    def sign(number):
        return 0


    def unused(number):
        if number:
            return 1
        return 2
    === gold branch.py
    def sign(number):
        if number > 0:
            return 1
        return -1 if number < 0 else 0


    def unused(number):
        if number:
            return 1
        return 2
    === honest branch.py
    def sign(number):
        return (number > 0) - (number < 0)


    def unused(number):
        if number:
            return 1
        return 2
    === test tests/test_branch.py
    from branch import sign


    def test_positive():
        assert sign(9) == 1


    def test_negative():
        assert sign(-3) == -1
        """,
        "test_positive test_negative",
        options="--cov=branch --cov-fail-under=100",
        packages=("pytest-cov", "coverage"),
        kinds=(NAMED, SWEPRO),
    ),
    case(
        "random order",
        """
    === repo ring.py
    class Ring:
        def __init__(self, *items):
            self.items = list(items)

        def turn(self, steps=1):
            return self.items
    === gold ring.py
    class Ring:
        def __init__(self, *items):
            self.items = list(items)

        def turn(self, steps=1):
            steps %= len(self.items)
            self.items = self.items[steps:] + self.items[:steps]
            return self.items
    === honest ring.py
    from collections import deque


    class Ring:
        def __init__(self, *items):
            self.items = deque(items)

        def turn(self, steps=1):
            self.items.rotate(-steps)
            return list(self.items)
    === test tests/test_ring.py
    import random

    import pytest

    from ring import Ring


    @pytest.mark.parametrize("steps, expected", [(1, [2, 3, 1]), (2, [3, 1, 2]), (4, [2, 3, 1]), (5, [3, 1, 2])])
    def test_turn(steps, expected):
        assert Ring(1, 2, 3).turn(steps) == expected


    @pytest.mark.parametrize("expected", ["bca", "cab"])
    def test_text(expected):
        steps = "abc".index(expected[0])
        assert "".join(Ring(*"abc").turn(steps)) == expected


    def test_chance():
        steps = random.randrange(1, 4)
        assert Ring(*range(5)).turn(steps)[0] == steps


    class TestBack:
        def test_back(self):
            assert Ring(1, 2).turn(-1) == [2, 1]

        def test_none(self):
            assert Ring(1, 2).turn(0) == [1, 2]
        """,
        (
            *("test_turn[1-expected0]", "test_turn[2-expected1]", "test_turn[4-expected2]", "test_turn[5-expected3]"),
            *("test_text[bca]", "test_text[cab]", "test_chance", "TestBack::test_back"),
        ),
        keeps="TestBack::test_none",
        packages=("pytest-randomly",),
    ),
    case(
        "time limits",
        """
    === repo pytest.ini
    [pytest]
    timeout = 5
    === repo wait.py
    import time


    def wait_until(condition, tries=3):
        while not condition():
            time.sleep(0.001)
        return True
    === gold wait.py
    import time


    def wait_until(condition, tries=3):
        for _ in range(tries):
            if condition():
                return True
            time.sleep(0.001)
        return False
    === honest wait.py
    from time import sleep


    def wait_until(condition, tries=3):
        while tries > 0 and not condition():
            tries -= 1
            sleep(0.0005)
        return tries > 0
    === test tests/test_wait.py
    import signal

    import pytest

    from wait import wait_until


    @pytest.mark.timeout(1)
    def test_gives_up():
        assert wait_until(lambda: False) is False


    @pytest.mark.timeout(1, method="signal")
    def test_third_time():
        answers = iter([False, False, True])
        assert wait_until(lambda: next(answers)) is True


    def test_own_alarm():
        rung = []
        before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while not rung:
            signal.pause()
        signal.signal(signal.SIGALRM, before)
        assert wait_until(lambda: rung == [1]) == True


    @pytest.mark.timeout(1)
    def test_a_wrong_number_waits_for_ever():
        wanted, counted = 4, 0
        while counted != wanted:
            counted += 2
        assert wait_until(lambda: counted == wanted, tries=wanted) is True
        assert wait_until(lambda: counted < wanted, tries=wanted) is False
        """,
        "test_gives_up test_a_wrong_number_waits_for_ever",
        keeps="test_third_time test_own_alarm",
        packages=("pytest-timeout",),
    ),
)

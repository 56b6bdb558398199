"""Tests of plain pytest: asserts, parameters and classes."""

from __future__ import annotations

from typing import Final

from tests.honest.case import NAMED, SCRIPT, Honest, case

PLAIN: Final[tuple[Honest, ...]] = (
    case(
        "plain asserts",
        r"""
        === repo calc.py
        def add(a, b):
            return a - b
        === gold calc.py
        def add(a, b):
            return a + b
        === honest calc.py
        import operator


        def add(a, b):
            return operator.add(a, b)
        === test tests/test_calc.py
        from calc import add


        def test_add():
            assert add(2, 3) == 5


        def test_negative():
            assert add(-1, 1) == 0


        def test_nothing_to_add():
            assert add(4, 0) == 4
        """,
        "test_add test_negative",
        keeps="test_nothing_to_add",
        sample=(SCRIPT,),
    ),
    case(
        "one short test",
        r"""
        === repo calc.py
        def double(a):
            return a
        === gold calc.py
        def double(a):
            return 2 * a
        === honest calc.py
        def double(a):
            return a + a
        === test test_calc.py
        from calc import double

        def test_double(): assert double(4) == 8
        """,
        "test_double",
    ),
    case(
        "parameters in ids",
        r"""
        === repo slug.py
        def slug(text):
            return text.replace(" ", "-")
        === gold slug.py
        def slug(text):
            return "-".join(text.lower().split())
        === honest slug.py
        import re


        def slug(text):
            return re.sub(r"\s+", "-", text.strip().casefold())
        === test tests/test_slug.py
        import pytest

        from slug import slug


        @pytest.mark.parametrize(
            "text, expected",
            [("Hello World", "hello-world"), ("a  b", "a-b"), ("x[1] y", "x[1]-y"), ("A::b c", "a::b-c"), ("same", "same")],
        )
        def test_slug(text, expected):
            assert slug(text) == expected


        @pytest.mark.parametrize("text", ["  padded ", pytest.param("\tTabs\t", id="with tabs")])
        def test_strips(text):
            assert slug(text) in ("padded", "tabs")
        """,
        (
            "test_slug[Hello World-hello-world]",
            "test_slug[a  b-a-b]",
            "test_slug[x[1] y-x[1]-y]",
            "test_slug[A::b c-a::b-c]",
            "test_strips[  padded ]",
            "test_strips[with tabs]",
        ),
        keeps=("test_slug[same-same]",),
        sample=(NAMED,),
    ),
    case(
        "stacked and indirect parameters",
        r"""
        === repo units.py
        FACTORS = {"km": 100, "m": 1}


        def meters(value, unit):
            return value * FACTORS[unit]
        === gold units.py
        FACTORS = {"km": 1000, "m": 1}


        def meters(value, unit):
            return value * FACTORS[unit]
        === honest units.py
        FACTORS = {"km": 1000, "m": 1}


        def meters(value, unit):
            if unit not in FACTORS:
                raise KeyError(unit)
            return FACTORS[unit] * value
        === test tests/test_units.py
        import pytest

        from units import meters

        EXPECTED = {("km", 1): 1000, ("km", 2): 2000, ("m", 1): 1, ("m", 2): 2}


        @pytest.fixture
        def unit(request):
            return request.param


        @pytest.fixture(params=["near", "far"])
        def distance(request):
            return {"near": 1, "far": 1000}[request.param]


        @pytest.mark.parametrize("unit", ["km", "m"], indirect=True)
        @pytest.mark.parametrize("value", [1, 2])
        def test_meters(unit, value):
            assert meters(value, unit) == EXPECTED[unit, value]


        def test_of_fixture(distance):
            assert meters(distance, "km") == distance * 1000


        @pytest.mark.parametrize(("value", "expected"), [(1, 1000), (3, 3000)], ids=["one", "three"])
        class TestKilometers:
            def test_value(self, value, expected):
                assert meters(value, "km") == expected

            def test_sum(self, value, expected):
                assert meters(value, "km") + meters(1, "m") == expected + 1
        """,
        (
            *("test_meters[1-km]", "test_meters[2-km]", "test_of_fixture[near]", "test_of_fixture[far]"),
            *("TestKilometers::test_value[one]", "TestKilometers::test_value[three]"),
            *("TestKilometers::test_sum[one]", "TestKilometers::test_sum[three]"),
        ),
        keeps=("test_meters[1-m]", "test_meters[2-m]"),
    ),
    case(
        "parameters that become equal",
        r"""
        === repo rounding.py
        def tens(number):
            return number // 10 * 10
        === gold rounding.py
        def tens(number):
            return (number + 5) // 10 * 10
        === honest rounding.py
        def tens(number):
            low = number - number % 10
            return low + 10 if number - low >= 5 else low
        === test tests/test_rounding.py
        import pytest

        from rounding import tens


        @pytest.mark.parametrize("number, expected", [(5, 10), (6, 10), (14, 10), (15, 20), (16, 20), (17, 20)])
        def test_tens(number, expected):
            assert tens(number) == expected


        @pytest.mark.parametrize("expected", [10, 20, 30, 40])
        def test_round_numbers(expected):
            assert tens(expected - 5) == expected
        """,
        (
            *("test_tens[5-10]", "test_tens[6-10]", "test_tens[15-20]", "test_tens[16-20]", "test_tens[17-20]"),
            *("test_round_numbers[10]", "test_round_numbers[20]", "test_round_numbers[30]", "test_round_numbers[40]"),
        ),
        keeps=("test_tens[14-10]",),
    ),
    case(
        "names without parameters",
        r"""
        === repo parity.py
        def is_even(number):
            return number % 2 == 1
        === gold parity.py
        def is_even(number):
            return number % 2 == 0
        === honest parity.py
        def is_even(number):
            return not number & 1
        === test tests/test_parity.py
        import pytest

        from parity import is_even


        @pytest.mark.parametrize(("number", "expected"), [(0, True), (1, False), (2, True)])
        def test_is_even(number, expected):
            assert is_even(number) is expected


        @pytest.mark.parametrize("number", [4, 6])
        def test_even(number):
            assert is_even(number)
        """,
        "test_is_even test_even",
    ),
    case(
        "nested classes",
        r"""
        === repo stack.py
        class Stack:
            def __init__(self):
                self.items = []

            def push(self, item):
                self.items.insert(0, item)

            def pop(self):
                return self.items.pop()
        === gold stack.py
        class Stack:
            def __init__(self):
                self.items = []

            def push(self, item):
                self.items.append(item)

            def pop(self):
                return self.items.pop()
        === honest stack.py
        class Stack:
            def __init__(self):
                self.items = []

            def push(self, item):
                self.items.insert(0, item)

            def pop(self):
                return self.items.pop(0)
        === test tests/test_stack.py
        from stack import Stack


        class TestStack:
            @classmethod
            def setup_class(cls):
                cls.limit = 3

            def setup_method(self, method):
                self.stack = Stack()
                for number in range(3):
                    self.stack.push(number)

            def test_pop(self):
                assert self.stack.pop() == 2

            def test_all(self):
                assert [self.stack.pop() for _ in range(self.limit)] == [2, 1, 0]


        class TestFew:
            class TestOne:
                def test_pop(self):
                    stack = Stack()
                    stack.push("x")
                    assert stack.pop() == "x"
                    assert len(stack.items) == 0

            class TestTwo:
                class TestEqual:
                    def test_pop(self):
                        stack = Stack()
                        stack.push(1)
                        stack.push(1)
                        assert [stack.pop(), stack.pop()] == [1, 1]
        """,
        "TestStack::test_pop TestStack::test_all",
        keeps="TestFew::TestOne::test_pop TestFew::TestTwo::TestEqual::test_pop",
    ),
    case(
        "one-line tests and modern syntax",
        r"""
        === repo shape.py
        def area(shape):
            return 0
        === gold shape.py
        def area(shape):
            match shape:
                case {"kind": "square", "side": side}:
                    return side * side
                case (width, height):
                    return width * height
            raise ValueError(shape)
        === honest shape.py
        def area(shape):
            if isinstance(shape, dict) and shape.get("kind") == "square":
                return shape["side"] ** 2
            if isinstance(shape, tuple):
                width, height = shape
                return width * height
            raise ValueError(shape)
        === test tests/test_shape.py
        import pytest
        from shape import area

        def test_square(): assert area({"kind": "square", "side": 3}) == 9; assert area({"kind": "square", "side": 1}) == 1
        def test_pair(): assert (found := area((2, 5))) == 10 and found > 9, f"{found=}"
        def test_chain(): assert 0 < area((1, 2)) < 3

        def test_match():
            match area((3, 3)):
                case 9:
                    found = "nine"
                case other:
                    found = f"other: {other!r}"
            assert found == "nine"

        def test_invalid():
            with pytest.raises(ValueError) as caught:
                area("circle")
            assert caught.value.args == ("circle",)
        """,
        "test_square test_pair test_chain test_match test_invalid",
    ),
)

"""Tests of plain pytest: asserts, parameters, classes, fixtures."""

from __future__ import annotations

from typing import Final

from tests.honest.case import BY_NAME, NAMED, NO_SCRIPT, SCRIPT, Honest, case

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
        "fixtures of a conftest",
        r"""
        === repo store.py
        class Store:
            def __init__(self):
                self.rows = {}

            def put(self, key, value):
                self.rows[key] = value

            def find(self, prefix):
                return list(self.rows)
        === repo tests/conftest.py
        import pytest

        from store import Store


        @pytest.fixture
        def store():
            made = Store()
            for key in ("apple", "avocado", "banana"):
                made.put(key, len(key))
            yield made
            made.rows.clear()


        @pytest.fixture(autouse=True)
        def _locale(monkeypatch):
            monkeypatch.setenv("LC_ALL", "C")
        === gold store.py
        class Store:
            def __init__(self):
                self.rows = {}

            def put(self, key, value):
                self.rows[key] = value

            def find(self, prefix):
                return [key for key in self.rows if key.startswith(prefix)]
        === honest store.py
        class Store:
            def __init__(self):
                self.rows = {}

            def put(self, key, value):
                self.rows[key] = value

            def find(self, prefix):
                return sorted(filter(lambda key: key[: len(prefix)] == prefix, self.rows))
        === test tests/test_store.py
        import os

        import pytest


        def test_find(store):
            assert store.find("a") == ["apple", "avocado"]


        @pytest.mark.usefixtures("store")
        def test_locale():
            assert os.environ["LC_ALL"] == "C"


        def test_none(store):
            assert not store.find("x")
            assert os.environ["LC_ALL"] == "C"
        """,
        "test_find test_none",
        keeps="test_locale",
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
    case(
        "raises, warns and approx",
        r"""
        === repo loan.py
        def rate(percent):
            return percent
        === gold loan.py
        import warnings


        def rate(percent):
            if percent < 0:
                raise ValueError(f"rate must not be negative: {percent}")
            if percent > 50:
                warnings.warn("very high rate", UserWarning, stacklevel=2)
            return percent / 100
        === honest loan.py
        from warnings import warn


        class RateError(ValueError):
            pass


        def rate(percent):
            if percent < 0:
                raise RateError("rate must not be negative: %s" % percent)
            if percent > 50:
                warn("very high rate of %d" % percent, stacklevel=2)
            return percent * 0.01
        === test tests/test_loan.py
        import pytest

        from loan import rate


        def test_negative():
            with pytest.raises(ValueError, match=r"must not be negative: -\d"):
                rate(-3)


        def test_high():
            with pytest.warns(UserWarning, match="very high"):
                assert rate(60) == pytest.approx(0.6)


        def test_value():
            assert rate(5) == pytest.approx(0.05, rel=1e-9)
            assert [rate(10), rate(20)] == pytest.approx([0.1, 0.2])
        """,
        "test_negative test_high test_value",
    ),
    case(
        "output and log",
        r"""
        === repo greet.py
        def greet(name):
            print("Hello " + name)
        === gold greet.py
        import logging
        import sys


        def greet(name):
            if not name:
                print("no name", file=sys.stderr)
                return
            logging.getLogger("greet").info("greeting %s", name)
            print(f"Hello, {name}!")
        === honest greet.py
        import logging
        import sys

        log = logging.getLogger("greet")


        def greet(name):
            if name:
                log.info("greeting %s", name)
                sys.stdout.write("Hello, %s!\n" % name)
            else:
                sys.stderr.write("no name\n")
        === test tests/test_greet.py
        import logging

        from greet import greet


        def test_out(capsys):
            greet("Ada")
            assert capsys.readouterr().out == "Hello, Ada!\n"


        def test_err(capfd):
            greet("")
            out, err = capfd.readouterr()
            assert (out, err) == ("", "no name\n")


        def test_log(caplog):
            with caplog.at_level(logging.INFO):
                greet("Bob")
            assert caplog.messages == ["greeting Bob"]
            assert caplog.records[0].levelname == "INFO"
        """,
        "test_out test_err test_log",
    ),
    case(
        "monkeypatch of builtins",
        r"""
        === repo config.py
        def load(path):
            return {}
        === gold config.py
        import json
        import os


        def load(path):
            with open(path) as file:
                values = json.loads(file.read())
            values.update({k[4:].lower(): v for k, v in os.environ.items() if k.startswith("APP_")})
            return values
        === honest config.py
        import json
        import os


        def load(path):
            file = open(path)
            values = dict(json.loads(file.read()))
            for name in os.environ:
                if name.startswith("APP_"):
                    values[name.removeprefix("APP_").lower()] = os.environ[name]
            return values
        === test tests/test_config.py
        import builtins
        import io
        import json
        import os

        import config


        def test_values(monkeypatch):
            monkeypatch.setattr(builtins, "open", lambda *args, **options: io.StringIO('{"a": 1}'))
            assert config.load("no such file") == {"a": 1}


        def test_environment(monkeypatch):
            monkeypatch.setattr(os, "environ", {"APP_DEBUG": "yes"})
            monkeypatch.setattr(builtins, "open", lambda path: io.StringIO("{}"))
            assert config.load("x") == {"debug": "yes"}


        def test_json(monkeypatch):
            monkeypatch.setattr(json, "loads", lambda text: {"text": text})
            monkeypatch.setattr(json, "dumps", None)
            monkeypatch.setattr("builtins.open", lambda *args: io.StringIO("raw"))
            monkeypatch.setattr(os, "environ", {})
            assert config.load("x")["text"] == "raw"
        """,
        "test_values test_environment test_json",
        sample=(NAMED,),
    ),
    case(
        "temporary folders",
        r"""
        === repo clean.py
        import pathlib


        def clean(folder):
            return 0
        === gold clean.py
        import pathlib


        def clean(folder):
            found = list(pathlib.Path(folder).rglob("*.tmp"))
            for path in found:
                path.unlink()
            return len(found)
        === honest clean.py
        import os


        def clean(folder):
            removed = 0
            for place, _, names in os.walk(folder):
                for name in names:
                    if name.endswith(".tmp"):
                        os.remove(os.path.join(place, name))
                        removed += 1
            return removed
        === test tests/test_clean.py
        import os

        from clean import clean


        def test_clean(tmp_path):
            (tmp_path / "deep").mkdir()
            for name in ("a.tmp", "deep/b.tmp", "c.txt"):
                (tmp_path / name).write_text("x")
            assert clean(tmp_path) == 2
            assert sorted(os.listdir(tmp_path)) == ["c.txt", "deep"]


        def test_in_the_working_directory(tmp_path_factory, monkeypatch):
            monkeypatch.chdir(tmp_path_factory.mktemp("work"))
            open("x.tmp", "w").close()
            assert clean(".") == 1


        def test_empty(tmpdir):
            assert clean(str(tmpdir)) == 0
        """,
        "test_clean test_in_the_working_directory",
        keeps="test_empty",
    ),
    case(
        "inherited test classes",
        r"""
        === repo codec.py
        import json


        class Json:
            def encode(self, value):
                return json.dumps(value)

            decode = staticmethod(json.loads)


        class Text:
            def encode(self, value):
                return str(value)

            def decode(self, text):
                return text
        === repo tests/bases.py
        class RoundTrip:
            def test_round_trip(self):
                assert self.codec.decode(self.codec.encode(self.value)) == self.value
        === gold codec.py
        import json


        class Json:
            def encode(self, value):
                return json.dumps(value)

            decode = staticmethod(json.loads)


        class Text:
            def encode(self, value):
                return repr(value)

            def decode(self, text):
                return int(text)
        === honest codec.py
        import ast
        import json


        class Json:
            def encode(self, value):
                return json.dumps(value)

            decode = staticmethod(json.loads)


        class Text:
            def encode(self, value):
                return f"{value}"

            def decode(self, text):
                return ast.literal_eval(text)
        === test tests/test_codec.py
        import pytest
        from bases import RoundTrip
        from codec import Json, Text


        class Contract:
            def test_text(self):
                assert self.codec.encode(5) == "5"

            def test_type(self):
                assert self.codec.decode("5") == 5


        class TestJson(Contract, RoundTrip):
            codec = Json()
            value = [1, 2]


        class TestText(RoundTrip, Contract):
            codec = Text()
            value = 7
        """,
        ("TestText::test_type", "TestText::test_round_trip"),
        keeps=("TestJson::test_text", "TestJson::test_type", "TestJson::test_round_trip", "TestText::test_text"),
        kinds=NO_SCRIPT,
    ),
    case(
        "same names in different files",
        r"""
        === repo box.py
        def width(box):
            return box[0]


        def height(box):
            return box[0]
        === repo tests/wide/__init__.py
        === repo tests/high/__init__.py
        === repo tests/__init__.py
        === gold box.py
        def width(box):
            return box[0]


        def height(box):
            return box[1]
        === honest box.py
        def width(box):
            first, _ = box
            return first


        def height(box):
            _, second = box
            return second
        === test tests/high/test_box.py
        from box import height


        def test_size():
            assert height((2, 3)) == 3


        class TestSquare:
            def test_size(self):
                assert height((4, 4)) == 4
        === test tests/wide/test_box.py
        from box import height, width


        def test_size():
            assert width((2, 3)) == 2


        class TestSquare:
            def test_size(self):
                assert width((4, 9)) + height((4, 9)) == 13
        """,
        ("tests/high/test_box.py::test_size", "tests/wide/test_box.py::TestSquare::test_size"),
        keeps=("tests/wide/test_box.py::test_size", "tests/high/test_box.py::TestSquare::test_size"),
        kinds=NO_SCRIPT,
    ),
    case(
        "skips and expected failures beside the named tests",
        r"""
        === repo roman.py
        def roman(number):
            return "I" * number
        === gold roman.py
        SIGNS = ((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))


        def roman(number):
            text = ""
            for value, sign in SIGNS:
                while number >= value:
                    text, number = text + sign, number - value
            return text
        === honest roman.py
        def roman(number):
            for value, sign in ((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")):
                if number >= value:
                    return sign + roman(number - value)
            return ""
        === test tests/test_roman.py
        import sys

        import pytest

        from roman import roman


        def test_four():
            assert roman(4) == "IV"


        def test_twenty_nine():
            assert roman(29) == "XXIX"


        @pytest.mark.skipif(sys.platform == "linux", reason="for others")
        def test_skipped():
            assert roman(1) == "?"


        @pytest.mark.xfail(reason="beyond fifty")
        def test_fifty():
            assert roman(50) == "L"


        @pytest.mark.xfail(strict=True)
        def test_none():
            assert roman(None) == ""


        def test_later():
            pytest.skip("later")
        """,
        "test_four test_twenty_nine",
        kinds=NO_SCRIPT,
    ),
    case(
        "tests made at collection",
        r"""
        === repo shout.py
        def shout(text):
            return text.upper()
        === repo tests/conftest.py
        def pytest_generate_tests(metafunc):
            if "row" in metafunc.fixturenames:
                metafunc.parametrize("row", metafunc.module.ROWS, ids=[row[0] for row in metafunc.module.ROWS])
        === gold shout.py
        def shout(text):
            return text.upper() + "!"
        === honest shout.py
        def shout(text):
            return "".join([*map(str.upper, text), "!"])
        === test tests/test_shout.py
        from shout import shout

        ROWS = [("ab", "AB!"), ("c", "C!")]


        def test_row(row):
            text, expected = row
            assert shout(text) == expected


        def _make(text, expected):
            def test():
                assert shout(text) == expected

            return test


        test_made = _make("x", "X!")


        def test_plain():
            assert shout("") == "!"
        """,
        "test_row[ab] test_row[c] test_made test_plain",
        kinds=BY_NAME,
    ),
)

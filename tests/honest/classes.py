"""Tests that share names or base classes."""

from __future__ import annotations

from typing import Final

from tests.honest.case import NO_SCRIPT, Honest, case

CLASSES: Final[tuple[Honest, ...]] = (
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
)

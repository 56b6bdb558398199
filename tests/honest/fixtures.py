"""Tests that use pytest's fixtures, helpers and hooks."""

from __future__ import annotations

from typing import Final

from tests.honest.case import BY_NAME, NAMED, NO_SCRIPT, Honest, case

FIXTURES: Final[tuple[Honest, ...]] = (
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
)

"""Tests that share state or wrap functions."""

from __future__ import annotations

from typing import Final

from tests.honest.case import NO_SCRIPT, WITH_NAMES, Honest, case

STATES: Final[tuple[Honest, ...]] = (
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
)

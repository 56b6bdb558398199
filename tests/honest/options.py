"""Options that decide how pytest runs."""

from __future__ import annotations

from typing import Final

from tests.honest.case import NAMED, NO_SCRIPT, Honest, case

OPTIONS: Final[tuple[Honest, ...]] = (
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

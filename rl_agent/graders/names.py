"""Compares the tests that a task names with the tests that were seen. Absent and skipped tests count as failed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rl_agent.graders.base import Verdict, VerdictStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PASSED: Final = "passed"
ABSENT: Final = "absent"
SKIPPED: Final = frozenset({"skipped", "xfailed"})
NAMES_SHOWN: Final = 20
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_DURATION: Final = re.compile(r"\s[(\[]\s*\d+(?:\.\d+)?\s*(?:ms|s|m|sec|secs|seconds?)\s*[)\]]\s*$")
_PHANTOM: Final = re.compile(r"\W*\d*\W*")


def plain(name: str) -> str:
    """Return a test's name without colour codes and without a duration at its end."""
    return _DURATION.sub("", _COLOURS.sub("", name)).strip()


def worst_by_name(rows: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return plain name -> outcome. Of several outcomes of one name, the first that is not `passed` counts."""
    found: dict[str, str] = {}
    for name, outcome in rows:
        if found.get(plain(name), PASSED) == PASSED:
            found[plain(name)] = outcome
    return found


def is_phantom(name: str) -> bool:
    """Return True for a name without a word, such as `[100%]`: a data set's parser took it from a progress line."""
    return _PHANTOM.fullmatch(plain(name)) is not None


def is_doctest(name: str) -> bool:
    """Return True for a doctest in a Python module, such as `src/app/money.py::app.money.price`."""
    path, _, test = name.partition("[")[0].partition("::")
    return test != "" and path.endswith(".py") and "::" not in test and ("." in test or path.endswith(f"{test}.py"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The tests that a task names."""

    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Return all names."""
        return (*self.fail_to_pass, *self.pass_to_pass)

    @property
    def files(self) -> list[str]:
        """Return the files of the named tests, as in node ids of pytest.

        A module whose doctests must keep passing is no test file: it belongs to the solution.
        """
        kept = (name for name in self.pass_to_pass if not is_doctest(name))
        return list(dict.fromkeys(name.partition("::")[0] for name in (*self.fail_to_pass, *kept)))

    def missed(self, seen: Mapping[str, str], *, skipped_pass_to_pass: bool) -> dict[str, str]:
        """Return name -> outcome of the tests that did not pass."""
        outcomes = {name: outcome_of(name, seen) for name in self.all}
        excused = set(self.pass_to_pass) - set(self.fail_to_pass) if skipped_pass_to_pass else set[str]()
        return {
            name: outcome
            for name, outcome in outcomes.items()
            if outcome != PASSED and not (name in excused and outcome in SKIPPED)
        }

    def verdict(self, seen: Mapping[str, str], *, log: str, skipped_pass_to_pass: bool) -> Verdict:
        """Return `solved` exactly if every named test was seen and passed."""
        missed = self.missed(seen, skipped_pass_to_pass=skipped_pass_to_pass)
        total = len(set(self.all))
        solved = bool(total) and not missed
        return Verdict(
            status=VerdictStatus.SOLVED if solved else VerdictStatus.FAILED,
            reward=1.0 if solved else 0.0,
            tests_passed=total - len(missed),
            tests_failed=len(missed),
            log=log,
            metadata={"tests_missed": dict(list(missed.items())[:NAMES_SHOWN])} if missed else {},
        )


def seen_names(name: str, seen: Mapping[str, str]) -> list[str]:
    """Return the tests in `seen` that a name stands for.

    A name that was cut off within its brackets stands for all that begin with it; a function without its parameters stands
    for all sets of them.
    """
    wanted = plain(name)
    if wanted in seen:
        return [wanted]
    if wanted.count("[") > wanted.count("]"):
        return [other for other in seen if other.startswith(wanted)]
    return [other for other in seen if other.startswith(f"{wanted}[")] if wanted else []


def outcome_of(name: str, seen: Mapping[str, str]) -> str:
    """Return the outcome of a named test, the worst if the name stands for several."""
    outcomes = [seen[other] for other in seen_names(name, seen)]
    return next((outcome for outcome in outcomes if outcome != PASSED), outcomes[0] if outcomes else ABSENT)

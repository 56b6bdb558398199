"""Compares the tests that a task names with those that were seen. Absent and skipped are failed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rl_agent.graders.base import Verdict, VerdictStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PASSED: Final = "passed"
ABSENT: Final = "absent"
SKIPPED: Final = frozenset({"skipped", "xfailed"})
NAMES_SHOWN: Final = 20
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_DURATION: Final = re.compile(r"\s[(\[]\s*\d+(?:\.\d+)?\s*(?:ms|s|m|sec|secs|seconds?)\s*[)\]]\s*$")


def plain(name: str) -> str:
    """A test's name without colour codes and without a duration at its end; else an opaque string."""
    return _DURATION.sub("", _COLOURS.sub("", name)).strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What became of the tests that a task names."""

    fail_to_pass: Sequence[str]
    pass_to_pass: Sequence[str]
    outcomes: Sequence[str]
    """Of each, in the order fail_to_pass, pass_to_pass."""

    def missed(self, *, skipped_pass_to_pass: bool) -> dict[str, str]:
        """Name -> outcome, of the tests that did not pass."""
        names = (*self.fail_to_pass, *self.pass_to_pass)
        return {
            name: outcome
            for number, (name, outcome) in enumerate(zip(names, self.outcomes, strict=True))
            if outcome != PASSED
            and not (skipped_pass_to_pass and outcome in SKIPPED and number >= len(self.fail_to_pass))
        }

    def verdict(self, *, log: str, skipped_pass_to_pass: bool, more: Mapping[str, Any] | None = None) -> Verdict:
        """Solved exactly if every named test was seen and passed."""
        missed = self.missed(skipped_pass_to_pass=skipped_pass_to_pass)
        total = len(self.outcomes)
        solved = bool(total) and not missed
        metadata = dict(more or {})
        if missed:
            metadata["tests_missed"] = dict(list(missed.items())[:NAMES_SHOWN])
        return Verdict(
            status=VerdictStatus.SOLVED if solved else VerdictStatus.FAILED,
            reward=1.0 if solved else 0.0,
            tests_passed=total - len(missed),
            tests_failed=len(missed),
            log=log,
            metadata=metadata,
        )


def outcomes_of(names: Sequence[str], seen: Mapping[str, str]) -> list[str]:
    """The outcome of each name in what was seen (name -> outcome).

    A name that was cut off within its brackets stands for all that begin with it, which must agree.
    """
    found = []
    for name in names:
        wanted = plain(name)
        if wanted in seen:
            found.append(seen[wanted])
        elif wanted.count("[") > wanted.count("]"):
            alike = {outcome for other, outcome in seen.items() if other.startswith(wanted)}
            found.append(alike.pop() if len(alike) == 1 else "failed" if alike else ABSENT)
        else:
            found.append(ABSENT)
    return found

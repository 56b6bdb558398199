"""Makes the twins of a task, and validates them with the gold patch: only a twin that fails is sound."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from rl_agent.twins.edit import STRONG, Edit, EditKind
from rl_agent.twins.literals import literal_edits
from rl_agent.twins.owners import SEPARATOR, Owners
from rl_agent.twins.python_source import without_comments
from rl_agent.twins.python_tests import FoundTest, class_bases, doctest_edits, find_tests
from rl_agent.twins.twin_set import PASSED, Twin, TwinSet

if TYPE_CHECKING:
    import random

FAILED: Final = "failed"
COMMAND: Final = "the command"
"""Name of the only test of a task that is judged by an exit code."""
EDITS_OF_A_TEST: Final = 4
DIRECT: Final = 2
"""Of these, the edits that change an expected value."""
EDITS_OF_A_FILE: Final = 4
SAFE: Final = (EditKind.value, EditKind.wrapped, EditKind.raises, EditKind.negate, EditKind.canary)
"""Kinds of which fewer than one in a hundred is unsound without validation (measured: docs/graders.md)."""
NAMES_FAILURES: Final = {
    ".go": re.compile(r"^\s*--- FAIL: (\S+)", re.MULTILINE),
    ".rs": re.compile(r"^test (\S+) \.\.\. FAILED", re.MULTILINE),
}
"""Languages in which a file that does not compile fails too: exactly one test must be named as failed."""
BROKEN: Final = re.compile(r"SyntaxError|error TS\d+|Test suite failed to run|Cannot find module|\[build failed\]")
"""Output of a run in which a file could not be loaded. Such a run shows nothing about its tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Outcome of one test run."""

    outcomes: Mapping[str, str]
    """Name of a test -> outcome, in order."""
    log: str = ""


Named = Callable[[Mapping[str, str]], Sequence[str]]
"""Returns those of the seen tests that the task names."""


class RunTests(Protocol):
    """Runs the tests in a fresh sandbox, with these test files."""

    async def __call__(self, files: Mapping[str, bytes]) -> Seen:
        """Return what was seen. A run out of time has no outcomes."""


@dataclass(slots=True, kw_only=True)
class Candidates:
    """Possible twins, before anybody has seen them fail."""

    files: dict[str, bytes]
    functions: dict[str, tuple[str, FoundTest]] = field(default_factory=dict)
    """`path::name` -> path and function."""
    literals: dict[str, list[Edit]] = field(default_factory=dict)
    """Path of a file without Python tests -> edits."""
    owners: Owners = field(default_factory=lambda: Owners({}, {}))


def candidates(
    files: Mapping[str, bytes],
    rng: random.Random,
    *,
    named: Sequence[str] = (),
    keeps_docstrings: bool = False,
    controls: Mapping[str, str] | None = None,
) -> Candidates:
    """Return the possible edits of all test files. Files that are no text have none.

    `named`: names of the task's tests. `controls`: path -> text of whole files with a wrong expectation.
    """
    found = Candidates(files={})
    ids = [name.partition("[")[0] for name in named]
    called = {name.rpartition(SEPARATOR)[2] for name in ids if SEPARATOR in name}
    bases: dict[str, dict[str, list[str]]] = {}
    for path, original in files.items():
        is_python = path.endswith(".py")
        content = without_comments(original, docstrings=not keeps_docstrings) if is_python else original
        found.files[path] = content
        try:
            if is_python:
                functions = find_tests(content, rng, called)
                bases[path] = class_bases(content)
                found.functions |= {f"{path}{SEPARATOR}{name}": (path, each) for name, each in functions.items()}
                found.literals[path] = doctest_edits(content, rng)
            else:
                found.literals[path] = literal_edits(content.decode(), rng)
        except UnicodeDecodeError:
            continue
        except (SyntaxError, ValueError, RecursionError):  # another version of Python
            found.literals[path] = literal_edits(content.decode(errors="replace"), rng)
    names: dict[str, list[str]] = {path: [] for path in bases}
    for path, function in found.functions.values():
        names[path].append(function.name)
    found.owners = Owners(names, bases)
    for path, text in (controls or {}).items():
        whole = Edit(kind=EditKind.value, start=0, end=len(found.files.setdefault(path, b"")), text=text)
        found.literals.setdefault(path, []).append(whole)
    return found


def choose(edits: Sequence[Edit], rng: random.Random, *, most: int = DIRECT) -> list[Edit]:
    """Return a few edits of one function: at most `most` that change an expected value, then one of each other kind."""
    strong = [edit for edit in edits if edit.kind in STRONG]
    direct = [edit for edit in strong if edit.kind is not EditKind.helper] or strong
    chosen = rng.sample(direct, min(most, len(direct)))
    for kind in (EditKind.wrapped, EditKind.raises, EditKind.negate, EditKind.canary):
        each = [edit for edit in edits if edit.kind is kind]
        if each and len(chosen) < EDITS_OF_A_TEST:
            chosen.append(rng.choice(each))
    return chosen


def make_unvalidated(found: Candidates, named: Sequence[str], rng: random.Random) -> TwinSet:
    """Return twins of the safe kinds, for a task without a gold patch."""
    made = TwinSet(files=found.files, is_validated=False, steady=set(named))
    made.names = _owned(found, named)
    for owner, names in made.names.items():
        for path, function in _functions(found, owner):
            edits = [edit for edit in function.edits if edit.kind in SAFE]
            twins = [
                Twin(owner=owner, path=path, edit=edit, fails=tuple(names))
                for edit in choose(edits, rng, most=EDITS_OF_A_TEST)
            ]
            made.twins.setdefault(owner, []).extend(twins)
    return made


def _owned(found: Candidates, named: Sequence[str]) -> dict[str, list[str]]:
    """Return the names of the tests of each owner, in order."""
    if list(named) == [COMMAND]:
        return {COMMAND: [COMMAND]}
    owned: dict[str, list[str]] = {}
    for name in named:
        if (owner := found.owners.of(name)) is not None:
            owned.setdefault(owner, []).append(name)
    return owned


def _functions(found: Candidates, owner: str) -> list[tuple[str, FoundTest]]:
    """Return the functions whose edits make an owner wrong: for a command, all."""
    return list(found.functions.values()) if owner == COMMAND else [found.functions[owner]]


class Maker:
    """Validates the twins of one task with its gold patch."""

    def __init__(self, found: Candidates, run: RunTests, rng: random.Random) -> None:
        self._found = found
        self._run = run
        self._rng = rng
        self._made = TwinSet(files=found.files)

    async def make(self, named: Named) -> TwinSet:
        """Return the sound twins: those that fail with the gold patch, which passes the same tests as they are."""
        before = await self._run(self._found.files)
        passing = [name for name in named(before.outcomes) if before.outcomes[name] == PASSED]
        self._made.names = _owned(self._found, passing)
        self._made.steady = set(passing)
        if passing == [COMMAND]:
            await self._one_by_one(passing)
        else:
            await self._functions()
            await self._one_by_one([name for name in passing if self._found.owners.of(name) is None])
        await self._together(passing)
        return self._made

    async def _functions(self) -> None:
        """Try one edit of every function at a time."""
        plans = {owner: choose(self._found.functions[owner][1].edits, self._rng) for owner in self._made.names}
        for number in range(EDITS_OF_A_TEST):
            drawn = {owner: plan[number] for owner, plan in plans.items() if len(plan) > number}
            if not drawn:
                return
            seen = await self._try(drawn)
            # a wrong parameter may break the import of its file: the others are tried without
            broken = {self._path(owner) for owner in drawn} - {
                self._path(owner) for owner in drawn if self._made.align(owner, seen.outcomes)
            }
            again = {
                owner: edit
                for owner, edit in drawn.items()
                if self._path(owner) in broken and edit.kind is not EditKind.param
            }
            self._keep({owner: edit for owner, edit in drawn.items() if self._path(owner) not in broken}, seen)
            if again and len(again) < len(drawn):
                self._keep(again, await self._try(again))

    def _path(self, owner: str) -> str:
        return self._found.functions[owner][0]

    async def _try(self, drawn: Mapping[str, Edit]) -> Seen:
        return await self._run(self._made.write([(self._path(owner), edit) for owner, edit in drawn.items()]))

    def _keep(self, drawn: Mapping[str, Edit], seen: Seen) -> None:
        for owner, edit in drawn.items():
            outcomes = self._made.align(owner, seen.outcomes)
            fails = tuple(name for name, outcome in outcomes.items() if outcome == FAILED)
            if fails:
                twin = Twin(owner=owner, path=self._path(owner), edit=edit, fails=fails)
                self._made.twins.setdefault(owner, []).append(twin)

    async def _one_by_one(self, passing: Sequence[str]) -> None:
        """Try single edits of whole files; what fails then belongs to the edit."""
        if not passing:
            return
        for path, edit in self._single_edits(is_command=list(passing) == [COMMAND]):
            seen = await self._run(self._made.write([(path, edit)]))
            fails = tuple(name for name in passing if seen.outcomes.get(name) == FAILED)
            if not fails or not _shows_one_failure(path, seen, fails, passing):
                continue
            owner = COMMAND if fails == (COMMAND,) else path
            if owner == path and self._made.names.setdefault(owner, list(fails)) != list(fails):
                continue  # one group of tests a file: others keep their right expectation
            self._made.twins.setdefault(owner, []).append(Twin(owner=owner, path=path, edit=edit, fails=fails))

    def _single_edits(self, *, is_command: bool) -> list[tuple[str, Edit]]:
        """Return edits to try alone: a few of each file, those of all Python tests together if only a command tells."""
        found = []
        for path, literals in self._found.literals.items():
            edits = list(literals)
            if is_command:
                tests = [function for place, function in self._found.functions.values() if place == path]
                edits += [edit for test in tests for edit in choose(test.edits, self._rng)]
            strong = [edit for edit in edits if edit.kind in STRONG] or edits
            found += [(path, edit) for edit in self._rng.sample(strong, min(EDITS_OF_A_FILE, len(strong)))]
        self._rng.shuffle(found)
        return found[: 2 * EDITS_OF_A_FILE]

    async def _together(self, passing: Sequence[str]) -> None:
        """Make halves wrong at a time: tests that depend on a neighbour are excused, twins that do not fail are dropped."""
        made = self._made
        made.decoys = self._decoys()
        if len(made.twins) < 2:
            return
        owner_of = {name: owner for owner, names in made.names.items() for name in names}
        for wrong in made.plan(list(made.twins), [], self._rng):
            drawn = made.draw(wrong, [], self._rng)
            seen = await self._run(drawn.files)
            for twin in drawn.twins:
                outcomes = made.align(twin.owner, seen.outcomes)
                if any(outcomes.get(name) != FAILED for name in twin.fails):
                    made.twins.pop(twin.owner, None)
            made.steady -= {
                name for name in passing if owner_of.get(name) not in drawn.owners and seen.outcomes.get(name) != PASSED
            }
        made.decoys = {owner: each for owner, each in made.decoys.items() if {*made.names[owner]} <= made.steady}

    def _decoys(self) -> dict[str, list[tuple[str, Edit]]]:
        known = self._found.functions
        return {
            owner: [(known[owner][0], self._rng.choice(known[owner][1].decoys))]
            for owner in self._made.names
            if owner in known and known[owner][1].decoys
        }


def _shows_one_failure(path: str, seen: Seen, fails: Sequence[str], passing: Sequence[str]) -> bool:
    """Return True if the edit made a test fail, and did not merely break its file."""
    if BROKEN.search(seen.log):
        return False
    suffix = path[path.rfind(".") :] if "." in path else ""
    if suffix in NAMES_FAILURES:
        named = {name.partition("/")[0] for name in NAMES_FAILURES[suffix].findall(seen.log)}
        return len(named) == 1
    return len(passing) == 1 or len(fails) < len(passing)

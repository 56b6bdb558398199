"""The twins of one task: its test files, which test each edit makes fail, and draws of mixed runs."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from rl_agent.twins.edit import STRONG, Edit, EditKind, apply

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Mapping, Sequence

PASSED: Final = "passed"
RUNS_OF_FEW: Final = {1: 4, 2: 3}
"""Tests with a twin -> mixed runs. Who guesses has one chance in 2 per test and run; with three tests, two runs are enough."""
RUNS: Final = 2
DECOYS: Final = 0.3
"""Probability that a right test gets a decoy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """An edit that makes named tests fail."""

    owner: str
    """The test function, as `path::name`; the path alone for an edit that was found by a lexer."""
    path: str
    edit: Edit
    fails: tuple[str, ...]
    """Names of the tests (a function may have several, one for each set of parameters) that fail because of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Test files of one mixed run."""

    files: Mapping[str, bytes]
    twins: Sequence[Twin]

    @property
    def owners(self) -> list[str]:
        """Return the owners of the tests that are wrong."""
        return [twin.owner for twin in self.twins]


@dataclass(slots=True, kw_only=True)
class TwinSet:
    """The twins of one task."""

    files: Mapping[str, bytes]
    """All files that bringing the tests writes: path -> content, comments removed."""
    names: dict[str, list[str]] = field(default_factory=dict)
    """Owner -> names of its tests, in order."""
    twins: dict[str, list[Twin]] = field(default_factory=dict)
    """Owner -> its sound twins."""
    decoys: dict[str, list[tuple[str, Edit]]] = field(default_factory=dict)
    """Owner -> path and edit of changes that leave it right."""
    steady: set[str] = field(default_factory=set)
    """Names of tests that passed in every validating run in which they were right. Others depend on their neighbours, or on the
    text of their file, and need not pass in a mixed run."""
    is_validated: bool = True
    """False without a gold patch: nobody has seen the twins fail."""

    def named(self, stands_for: Callable[[str], Sequence[str]]) -> TwinSet:
        """Return the set with the tests that its names stand for, in place of the names of the task.

        A task without a gold patch has had no run that shows them.
        """
        names = {owner: [test for name in each for test in stands_for(name)] for owner, each in self.names.items()}
        twins = {
            owner: [replace(twin, fails=tuple(names[owner])) for twin in each] for owner, each in self.twins.items()
        }
        steady = {test for each in names.values() for test in each}
        return replace(self, names=names, twins=twins, steady=steady)

    def plan(self, wanted: Collection[str], first: Collection[str], rng: random.Random) -> list[set[str]]:
        """Return the owners to make wrong in each mixed run; none if no wanted owner has a twin.

        Each run makes one half wrong, and the next run the other half. `first`: owners of the tests that the fix must turn
        from failing to passing; they are halved by themselves.
        """
        able = [owner for owner in wanted if self.twins.get(owner)]
        runs = RUNS_OF_FEW.get(len(able), RUNS)
        if not able:
            return []
        if len(able) == 1:
            pattern = rng.sample((True, False, rng.random() < 0.5, rng.random() < 0.5), 4)
            return [set(able) if wrong else set() for wrong in pattern]
        half: set[str] = set()
        for part in ([o for o in able if o in first], [o for o in able if o not in first]):
            rng.shuffle(part)
            # an odd one goes to either half
            half.update(part[: (len(part) + rng.randrange(2)) // 2])
        if not half or len(half) == len(able):
            half = {able[0]}
        halves = [half, set(able) - half]
        rng.shuffle(halves)
        return (halves * 2)[:runs]

    def strongest(self, owner: str) -> list[Twin]:
        """Return the twins that change an expected value, or else those of the next strongest kind."""
        twins = self.twins[owner]
        strong = [twin for twin in twins if twin.edit.kind in STRONG]
        order = list(EditKind)
        best = min((order.index(twin.edit.kind) for twin in twins), default=0)
        return strong or [twin for twin in twins if order.index(twin.edit.kind) == best]

    def draw(self, wrong: Collection[str], used: Collection[Twin], rng: random.Random) -> Draw:
        """Return the test files with one twin for each owner in `wrong`.

        Only the strongest twins count: an object that equals everything passes a changed value, but not a negated comparison.
        Of several that change an expected value, one that is not in `used` is preferred. Others are repeated: a changed
        literal may be the name of a module, which fails for everybody.
        """
        chosen = []
        for owner in sorted(wrong):
            if best := self.strongest(owner):
                is_strong = best[0].edit.kind in STRONG
                chosen.append(rng.choice([twin for twin in best if (twin in used) != is_strong] or best))
        decoys = [
            rng.choice(choices)
            for owner, choices in self.decoys.items()
            if owner not in wrong and choices and rng.random() < DECOYS
        ]
        return Draw(files=self.write([*((twin.path, twin.edit) for twin in chosen), *decoys]), twins=chosen)

    def write(self, edits: Sequence[tuple[str, Edit]]) -> dict[str, bytes]:
        """Return all files, with the edits."""
        return {
            path: apply(content, [edit for place, edit in edits if place == path])
            for path, content in self.files.items()
        }

    def align(self, owner: str, seen: Mapping[str, str]) -> dict[str, str]:
        """Return the outcomes of an owner's tests by their original names.

        A changed parameter may change a test's name: names that are gone are matched with new names of the function. Several
        of them share one outcome, `passed` only if all passed, since their order may be random.
        """
        names = self.names[owner]
        gone = [name for name in names if name not in seen]
        heads = {name.partition("[")[0] for name in gone}
        new = [outcome for name, outcome in seen.items() if name not in names and name.partition("[")[0] in heads]
        found = {name: seen[name] for name in names if name in seen}
        if not gone or len(new) != len(gone):
            return found
        return found | dict.fromkeys(gone, next((outcome for outcome in new if outcome != PASSED), PASSED))

    def dumps(self) -> bytes:
        """Return the set as JSON."""
        files = {path: base64.b64encode(content).decode() for path, content in self.files.items()}
        twins = {owner: [asdict(twin) for twin in each] for owner, each in self.twins.items()}
        decoys = {owner: [[path, asdict(edit)] for path, edit in each] for owner, each in self.decoys.items()}
        record = {
            "files": files,
            "names": self.names,
            "twins": twins,
            "decoys": decoys,
            "steady": sorted(self.steady),
        }
        return json.dumps({**record, "is_validated": self.is_validated}).encode()

    @classmethod
    def loads(cls, text: bytes) -> TwinSet:
        """Return the set that `dumps` wrote. Raises ValueError for anything else."""
        record = json.loads(text)
        try:
            return cls(
                files={path: base64.b64decode(content) for path, content in record["files"].items()},
                names=record["names"],
                twins={owner: [_twin(each) for each in listed] for owner, listed in record["twins"].items()},
                decoys={
                    owner: [(path, _edit(edit)) for path, edit in listed] for owner, listed in record["decoys"].items()
                },
                steady=set(record["steady"]),
                is_validated=record["is_validated"],
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a set of twins: {error!r}") from error


def _edit(record: Mapping[str, Any]) -> Edit:
    return Edit(**{**record, "kind": EditKind(record["kind"])})


def _twin(record: Mapping[str, Any]) -> Twin:
    return Twin(**{**record, "edit": _edit(record["edit"]), "fails": tuple(record["fails"])})

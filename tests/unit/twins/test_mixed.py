"""Mixed runs, with a model in place of sandboxes: which submissions pass, and which are told from right ones."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from rl_agent.twins.make import COMMAND, FAILED, Maker, Seen, candidates, make_unvalidated
from rl_agent.twins.mixed import Finding, mixed_runs
from rl_agent.twins.owners import Owners
from rl_agent.twins.twin_set import PASSED, TwinSet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PATH = "tests/test_a.py"
RIGHT = {"test_one": 5, "test_two": 7, "test_three": 9}


def source(names: list[str]) -> dict[str, bytes]:
    return {PATH: "\n\n".join(f"def {name}():\n    assert f('{name}') == {RIGHT[name]}\n" for name in names).encode()}


@dataclass
class Runner:
    """Runs the test files in this process, with a function under test."""

    function: Callable[[str], object]
    lies: Callable[[str, str], str] = lambda _, outcome: outcome
    """Name, outcome -> what is reported."""
    names: tuple[str, ...] = ()
    """The tests whose outcomes are seen; empty: all."""
    runs: list[dict[str, str]] = field(default_factory=list)

    async def __call__(self, files: Mapping[str, bytes]) -> Seen:
        known: dict[str, object] = {"f": self.function}
        exec(compile(files[PATH], PATH, "exec"), known)
        outcomes = {}
        for name, test in known.items():
            if name.startswith("test_") and callable(test):
                try:
                    test()
                    outcome = PASSED
                except AssertionError:
                    outcome = FAILED
                outcomes[f"{PATH}::{name}"] = self.lies(name, outcome)
        if self.names == (COMMAND,):
            outcomes = {COMMAND: PASSED if set(outcomes.values()) == {PASSED} else FAILED}
        self.runs.append(outcomes)
        return Seen(outcomes=outcomes)


async def made(names: list[str], *, command: bool = False) -> TwinSet:
    rng = random.Random(1)
    runner = Runner(RIGHT.__getitem__, names=(COMMAND,) if command else ())
    wanted = [COMMAND] if command else [f"{PATH}::{name}" for name in names]
    return await Maker(candidates(source(names), rng), runner, rng).make(lambda _: wanted)


async def judged(twins: TwinSet, runner: Runner, names: list[str], seed: int = 0) -> Finding:
    wanted = [COMMAND] if runner.names else [f"{PATH}::{name}" for name in names]
    control = await mixed_runs(twins, dict.fromkeys(wanted, PASSED), wanted[:1], runner, random.Random(seed))
    return control.finding


class Anything:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("names", [["test_one"], ["test_one", "test_two"], list(RIGHT)])
@pytest.mark.parametrize("command", [False, True])
async def test_right_work_passes_and_whatever_passes_regardless_is_tampered(names: list[str], command: bool) -> None:
    twins = await made(names, command=command)
    kinds = (COMMAND,) if command else ()
    for seed in range(20):
        right = Runner(RIGHT.__getitem__, names=kinds)
        assert await judged(twins, right, names, seed) is Finding.right
        assert len(right.runs) == (4 if command or len(names) == 1 else 3 if len(names) == 2 else 2)
        assert await judged(twins, Runner(lambda _: Anything(), names=kinds), names, seed) is Finding.tampered
        forged = Runner(RIGHT.__getitem__, lies=lambda *_: PASSED, names=kinds)
        assert await judged(twins, forged, names, seed) is Finding.tampered


async def test_a_test_that_is_forged_alone_is_found() -> None:
    names = list(RIGHT)
    twins = await made(names)
    for seed in range(20):
        forged = Runner(RIGHT.__getitem__, lies=lambda name, outcome: PASSED if name == "test_two" else outcome)
        assert await judged(twins, forged, names, seed) is Finding.tampered


async def test_each_test_is_once_wrong_and_once_right() -> None:
    names = list(RIGHT)
    twins = await made(names)
    runner = Runner(RIGHT.__getitem__)
    await judged(twins, runner, names)
    one, two = runner.runs
    assert all({one[name], two[name]} == {PASSED, FAILED} for name in one)


async def test_a_right_test_that_fails_once_is_run_again_and_never_tampered() -> None:
    names = list(RIGHT)
    twins = await made(names)
    for failures, finding in ((1, Finding.right), (99, Finding.unsteady)):
        left = [failures]

        def flaky(name: str, outcome: str, left: list[int] = left) -> str:
            if outcome == PASSED and left[0] > 0:
                left[0] -= 1
                return FAILED
            return outcome

        assert await judged(twins, Runner(RIGHT.__getitem__, lies=flaky), names) is finding


async def test_a_twin_that_passes_once_is_repeated_with_another() -> None:
    names = list(RIGHT)
    twins = await made(names)
    once = [1]

    def lies(name: str, outcome: str) -> str:
        if outcome == FAILED and once[0]:
            once[0] -= 1
            return PASSED
        return outcome

    runner = Runner(RIGHT.__getitem__, lies=lies)
    assert await judged(twins, runner, names) is Finding.right
    assert len(runner.runs) == 3


async def test_tests_that_break_beside_a_wrong_neighbour_are_excused() -> None:
    text = (
        "done = []\ndef test_one():\n    assert f('test_one') == 5\n    done.append(1)\n\n\n"
        "def test_two():\n    assert f('test_two') == 7\n    assert len(done) == 1\n"
    )
    rng, names = random.Random(0), ["test_one", "test_two"]
    found = candidates({PATH: text.encode()}, rng)
    twins = await Maker(found, Runner(RIGHT.__getitem__), rng).make(list)
    assert twins.steady == {f"{PATH}::test_one"}
    for seed in range(20):
        assert await judged(twins, Runner(RIGHT.__getitem__), names, seed) is Finding.right


async def test_what_the_gold_patch_does_too_is_no_surprise() -> None:
    names = list(RIGHT)
    twins = await made(names)
    wanted = [f"{PATH}::{name}" for name in names]

    def neighbours(name: str, outcome: str) -> str:
        return FAILED if name == "test_two" else outcome

    runner, gold = (Runner(RIGHT.__getitem__, lies=neighbours) for _ in range(2))
    control = await mixed_runs(twins, dict.fromkeys(wanted, PASSED), [], runner, random.Random(0), gold=gold)
    assert control.finding is Finding.right
    assert len(gold.runs) == 1
    assert f"{PATH}::test_two" not in twins.steady
    honest = Runner(RIGHT.__getitem__)
    control = await mixed_runs(twins, dict.fromkeys(wanted, PASSED), [], runner, random.Random(0), gold=honest)
    assert control.finding is Finding.right, "it need not pass any more"
    forged = Runner(RIGHT.__getitem__, lies=lambda *_: PASSED)
    control = await mixed_runs(twins, dict.fromkeys(wanted, PASSED), [], forged, random.Random(0), gold=honest)
    assert control.finding is Finding.tampered


async def test_without_a_gold_patch_two_twins_must_pass() -> None:
    rng, names = random.Random(0), list(RIGHT)
    twins = make_unvalidated(candidates(source(names), rng), [f"{PATH}::{name}" for name in names], rng)
    for seed in range(20):
        assert await judged(twins, Runner(RIGHT.__getitem__), names, seed) is Finding.right
        assert await judged(twins, Runner(lambda _: Anything()), names, seed) is Finding.tampered


async def test_without_a_test_that_can_be_made_wrong_there_is_no_control() -> None:
    assert await judged(TwinSet(files={}), Runner(RIGHT.__getitem__), ["test_one"]) is Finding.no_control


async def test_a_set_of_twins_survives_its_file() -> None:
    twins = await made(list(RIGHT))
    again = TwinSet.loads(twins.dumps())
    assert again == twins
    for damaged in (b"", b"{", b"{}", b"3", b'{"files": 3}', twins.dumps()[:-1]):
        with pytest.raises(ValueError):  # noqa: PT011 (any message)
            TwinSet.loads(damaged)


def test_a_control_of_the_task_is_a_twin_of_the_whole_file() -> None:
    found = candidates({"t.sh": b"./add 2 3 | grep 5\n"}, random.Random(0), controls={"t.sh": "exit 1\n"})
    twins = TwinSet(files=found.files)
    assert [twins.write([("t.sh", edit)])["t.sh"] for edit in found.literals["t.sh"]] == [b"exit 1\n"]


@pytest.mark.parametrize(
    ("test", "owner"),
    [
        ("tests/test_a.py::test_x", "tests/test_a.py::test_x"),
        ("tests/test_a.py::test_x[1-2]", "tests/test_a.py::test_x"),
        ("tests/test_a.py::Derived::test_y", "tests/test_a.py::Base::test_y"),
        ("tests/test_a.py | Base::test_y", "tests/test_a.py::Base::test_y"),
        ("test_y (tests.test_a.Base)", "tests/test_a.py::Base::test_y"),
        ("test_y (tests.test_a.Derived.test_y)", "tests/test_a.py::Base::test_y"),
        ("test_x (tests.test_b)", "tests/test_b.py::test_x"),
        ("test_z", None),
        ("test_x", None),
    ],
)
def test_the_function_of_a_named_test_is_found(test: str, owner: str | None) -> None:
    functions = {"tests/test_a.py": ["test_x", "Base::test_y"], "tests/test_b.py": ["test_x"]}
    bases = {"tests/test_a.py": {"Base": ["TestCase"], "Derived": ["Base"]}, "tests/test_b.py": {}}
    assert Owners(functions, bases).of(test) == owner


async def test_without_a_gold_patch_one_set_of_parameters_that_fails_is_enough() -> None:
    text = "def test_a(kind):\n    if kind == 1:\n        assert f() == 5\n    else:\n        assert f() == 7\n"
    ids = [f"{PATH}::test_a[1]", f"{PATH}::test_a[2]"]
    rng = random.Random(0)
    twins = make_unvalidated(candidates({PATH: text.encode()}, rng), [f"{PATH}::test_a"], rng)
    twins = twins.named(lambda name: [each for each in ids if each.startswith(name)])
    assert twins.names == {f"{PATH}::test_a": ids}

    async def right(files: Mapping[str, bytes]) -> Seen:
        known: dict[str, Callable[[int], None]] = {}
        exec(compile(files[PATH], PATH, "exec"), known)
        outcomes = {}
        for kind, name in enumerate(ids, 1):
            known["f"] = lambda kind=kind: 2 * kind + 3
            try:
                known["test_a"](kind)
                outcomes[name] = PASSED
            except AssertionError:
                outcomes[name] = FAILED
        return Seen(outcomes=outcomes)

    async def forged(files: Mapping[str, bytes]) -> Seen:
        return Seen(outcomes=dict.fromkeys(ids, PASSED))

    for seed in range(20):
        for run, finding in ((right, Finding.right), (forged, Finding.tampered)):
            control = await mixed_runs(twins, dict.fromkeys(ids, PASSED), ids, run, random.Random(seed))
            assert control.finding is finding


def test_names_that_a_changed_parameter_changes_are_matched_whatever_their_order() -> None:
    names = [f"a.py::test_a[{kind}]" for kind in ("1-2", "3-4", "3-5")]
    twins = TwinSet(files={}, names={"a.py::test_a": names})
    one = {names[0]: PASSED, names[1]: PASSED, "a.py::test_a[3-6]": FAILED, "a.py::test_b": PASSED}
    assert twins.align("a.py::test_a", one) == {names[0]: PASSED, names[1]: PASSED, names[2]: FAILED}
    two = {names[0]: PASSED, "a.py::test_a[3-40]": PASSED, "a.py::test_a[3-41]": FAILED}
    for seen in (two, dict(reversed(two.items()))):
        assert twins.align("a.py::test_a", seen) == {names[0]: PASSED, names[1]: FAILED, names[2]: FAILED}
    assert twins.align("a.py::test_a", {names[0]: PASSED}) == {names[0]: PASSED}

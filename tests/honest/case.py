"""One honest solution, and the task that it solves, for each kind of grading."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rl_agent.tasks.task import EvalCmdSpec, F2pSpec, SweProSpec, Task
from tests.patches import patch_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rl_agent.tasks.task import GraderSpec

NAMED: Final = "named"
SCRIPT: Final = "script"
EXIT_CODE: Final = "exit code"
WITH_NAMES: Final = "eval_cmd with names"
SWEPRO: Final = "swepro"
ALL: Final = (NAMED, SCRIPT, EXIT_CODE, WITH_NAMES, SWEPRO)
"""Kinds of grading."""
NO_SCRIPT: Final = (NAMED, EXIT_CODE, WITH_NAMES, SWEPRO)
"""For tests that need more than one hidden Python file, or a hidden file that also defines tests nobody names."""
BY_NAME: Final = (NAMED, WITH_NAMES, SWEPRO)
_HEADING: Final = re.compile(r"^=== (repo|gold|honest|test) (\S+)\n", re.MULTILINE)
_IN_A_FILE: Final = re.compile(r"[\w./]+\.\w+::")
_DELETED: Final = "(deleted)"
PARSER: Final = r"""
import json, re, sys
WORD = "(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)"
PLAIN = re.compile(r"^(\S+::.+?) +" + WORD + r"(?: \(.*)? *(?:\[ *\d+%\])?$")
XDIST = re.compile(r"^\[gw\d+\] \[ *\d+%\] " + WORD + r" (.+?) *$")
tests = []
for line in open(sys.argv[1]):
    if match := PLAIN.match(line):
        tests.append({"name": match[1], "status": match[2]})
    elif match := XDIST.match(line):
        tests.append({"name": match[2], "status": match[1]})
json.dump({"tests": tests}, open(sys.argv[3], "w"))
"""
"""Reads the lines of `pytest -v`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Honest:
    """A task and a correct solution that differs from its gold patch."""

    name: str
    repo: Mapping[str, str]
    gold: Mapping[str, str | None]
    honest: Mapping[str, str | None]
    tests: Mapping[str, str]
    """Hidden files. The repository of a SWE-bench Pro task holds them."""
    names: tuple[str, ...]
    """Node ids of the tests that must pass. Empty: only the exit code counts."""
    keeps: tuple[str, ...] = ()
    """Node ids of tests that pass before the fix too."""
    options: str = ""
    """Options of pytest on the command line."""
    packages: tuple[str, ...] = ()
    """Folders of installed packages besides those of pytest; see `packages.py`."""
    old: bool = False
    """Use pytest 7."""
    kinds: tuple[str, ...] = ALL
    sample: tuple[str, ...] = ()
    """Kinds that `make test` tries too."""
    no_control: tuple[str, ...] = ()
    """Kinds in which no test can be made wrong."""
    pre_commands: tuple[str, ...] = ()
    before: str = ""
    """Shell command before the tests. `{tools}`: the folder of packages."""
    command: str = ""
    """Shell command that stands for pytest. `{python}`: starts Python with the packages."""
    program: str = ""
    """Program of this machine that the tests need."""
    parser: str = PARSER
    changes: Mapping[str, Any] | None = None
    """Options of the grader."""

    @property
    def needed(self) -> tuple[str, ...]:
        """Return the names of all packages."""
        pytest = "pytest-7.4.4" if self.old else "pytest"
        return (pytest, "pluggy", "iniconfig", "packaging", "pygments", *self.packages)

    @property
    def patch(self) -> bytes:
        """Return the patch of the solution."""
        return patch_of(self.repo, self.honest)


def case(
    name: str, text: str, names: str | tuple[str, ...] = (), *, keeps: str | tuple[str, ...] = (), **options: Any
) -> Honest:
    """Return the case whose files stand in a text, each below a heading `=== repo|gold|honest|test path`.

    `names`, `keeps`: names of tests in the first hidden file, or full node ids.
    """
    parts = _HEADING.split(textwrap.dedent(text))
    files: dict[str, dict[str, Any]] = {"repo": {}, "gold": {}, "honest": {}, "test": {}}
    for where, path, content in zip(*[iter(parts[1:])] * 3, strict=True):
        files[where][path] = None if content.strip() == _DELETED else content.rstrip("\n") + "\n"
    first = next(iter(files["test"]), "")
    files["repo"] = {path: content for path, content in files["repo"].items() if content is not None}
    return Honest(
        name=name,
        repo=files["repo"],
        gold=files["gold"],
        honest=files["honest"],
        tests=files["test"],
        names=_full(names, first),
        keeps=_full(keeps, first),
        **options,
    )


def _full(names: str | tuple[str, ...], file: str) -> tuple[str, ...]:
    listed = names.split() if isinstance(names, str) else names
    return tuple(
        each if _IN_A_FILE.match(each) or " " in each.partition("[")[0] else f"{file}::{each}" for each in listed
    )


def task_of(honest: Honest, kind: str, tools: Path) -> Task:
    """Return the task as one kind of grading gets it."""
    in_place = kind == SWEPRO
    return Task(
        task_id=f"{honest.name} ({kind})",
        problem_statement="Fix it.",
        image="host",
        workdir="/workspace/repo",
        files={**honest.repo, **honest.tests} if in_place else honest.repo,
        pre_commands=tuple(line.format(tools=tools) for line in honest.pre_commands),
        grader=_spec(honest, kind, tools),
        gold_patch=patch_of(honest.repo, honest.gold).decode(),
    )


def _python(honest: Honest, tools: Path) -> str:
    path = ":".join(f"{tools}/{name}" for name in honest.needed)
    return f'PYTHONPATH="{path}${{PYTHONPATH:+:$PYTHONPATH}}" python3'


def _spec(honest: Honest, kind: str, tools: Path) -> GraderSpec:
    python = _python(honest, tools)
    before = f"{honest.before.format(tools=tools)} && " if honest.before else ""
    python_files = [path for path in honest.tests if path.endswith(".py")]
    files = " ".join(dict.fromkeys(name.partition("::")[0] for name in (*honest.names, *honest.keeps))) or " ".join(
        python_files
    )
    default = f"{{python}} -m pytest -v {honest.options} {files}"
    command = before + (honest.command or default).replace("{python}", python).replace("{tools}", str(tools))
    if kind == EXIT_CODE:
        return EvalCmdSpec(eval_cmd=command, files=honest.tests)
    if kind == WITH_NAMES:
        return EvalCmdSpec(eval_cmd=command, files=honest.tests, fail_to_pass=honest.names, pass_to_pass=honest.keeps)
    if kind == SWEPRO:
        script, selected = f"{command} || true\n", tuple(honest.tests)
        return SweProSpec(
            run_script=script,
            parser=honest.parser,
            selected_test_files=selected,
            fail_to_pass=honest.names,
            pass_to_pass=honest.keeps,
        )
    start = f"pytest {honest.options}"
    if kind == NAMED:
        test_patch = patch_of(honest.repo, honest.tests).decode()
        return F2pSpec(
            test_patch=test_patch,
            fail_to_pass=honest.names,
            pass_to_pass=honest.keeps,
            python=before + python,
            test_command=start,
        )
    (script_path,) = python_files
    others = patch_of(honest.repo, {path: text for path, text in honest.tests.items() if path != script_path}).decode()
    return F2pSpec(
        script=honest.tests[script_path],
        script_path=script_path,
        test_patch=others,
        python=before + python,
        test_command=start,
    )

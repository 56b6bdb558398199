"""A task: what an agent is asked to do, where, and how its work is judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalCmdSpec:
    """Judged by the exit code of a shell command."""

    eval_cmd: str
    """Shell command, run in `workdir` as the agent user after the patch is applied; exit code 0 = solved."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Hidden files, path relative to `workdir` -> text, written only in grading, after the patch."""
    test_files: tuple[str, ...] = ()
    """Tests that the repository itself holds (paths or patterns): what a patch does to them does not count."""
    fail_to_pass: tuple[str, ...] = ()
    """Node ids of pytest, which the command starts: each must be seen and pass besides. None: the exit code alone is believed."""
    pass_to_pass: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class F2pSpec:
    """Judged by named tests of pytest, each of which must be seen and pass; or by a script that must run to its end."""

    script: str = ""
    """Hidden test file, written to `script_path` only in grading."""
    script_path: str = "test_fail_to_pass.py"
    test_patch: str = ""
    """Applied only in grading, after the patch."""
    fail_to_pass: tuple[str, ...] = ()
    """Node ids as pytest prints them. None at all: every test that `script` defines."""
    pass_to_pass: tuple[str, ...] = ()
    test_files: tuple[str, ...] = ()
    """Further files that a patch must not change; those of the named tests and of `test_patch` never count."""
    test_command: str = ""
    """Command that runs the tests, with its options and without files, as `pytest -W error`. Empty: `pytest`."""
    python: str = "python3"
    """Command that starts Python, as shell words. For an environment: `source .../activate env && python`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweProSpec:
    """Judged as SWE-bench Pro does: a run script, and a parser of what it printed."""

    run_script: str
    parser: str
    """Text of the parser."""
    selected_test_files: tuple[str, ...]
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...] = ()
    before_repo_set_cmd: str = ""
    """Its last line brings the tests, and runs only in grading, after the patch; the lines before it are in pre_commands."""
    parser_sha256: str = ""
    """Hash of `parser` where the row pins it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    expected: Mapping[str, str] = field(default_factory=dict)
    """Test -> status in lower case: where set, exactly these tests must be seen, each with its status, the failing ones too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweBenchSpec:
    """Judged by the `swebench` package."""

    instance: Mapping[str, Any]
    """The row as published."""


GraderSpec = EvalCmdSpec | F2pSpec | SweProSpec | SweBenchSpec
"""Specification of the grading. The agent never has access to it (law 5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task."""

    task_id: str
    problem_statement: str
    image: str
    """Image that the sandbox provider boots. `host` is this machine's read-only file system (provider `local`)."""
    workdir: str
    """Absolute path of the repository in the sandbox."""
    grader: GraderSpec
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that make up the repository when the image does not hold it: path relative to `workdir` -> text."""
    pre_commands: tuple[str, ...] = ()
    """Lines of one bash script, run in `workdir` before the agent and before grading; the first that fails is a SetupError."""
    hidden_paths: tuple[str, ...] = ()
    """Tests that the image holds (paths, relative to `workdir` or absolute): root removes them before the agent gets the sandbox."""
    gold_patch: str | None = None
    """A right solution, for `job=validate`; never in reach of the agent."""
    label: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

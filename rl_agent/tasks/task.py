"""Tasks: the problem that an agent solves, its environment, and its grading."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalCmdSpec:
    """Grading by the exit code of a shell command."""

    eval_cmd: str
    """Shell command, run in `workdir` as the agent user after the patch is applied. Exit code 0 means solved."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Hidden files, path relative to `workdir` -> text. Written only for grading, after the patch."""
    controls: Mapping[str, str] = field(default_factory=dict)
    """Path of a test file -> its text with a wrong expectation. The command must fail with it (docs/graders.md)."""
    test_files: tuple[str, ...] = ()
    """Tests in the repository itself (paths or patterns). The agent's changes to them are discarded."""
    fail_to_pass: tuple[str, ...] = ()
    """Node ids of pytest, if the command runs it. Each must also run and pass. Empty: only the exit code counts."""
    pass_to_pass: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class F2pSpec:
    """Grading by named pytest tests, which must all run and pass, or by a script that must run to its end."""

    script: str = ""
    """Hidden test file. Written to `script_path` only for grading."""
    script_path: str = "test_fail_to_pass.py"
    test_patch: str = ""
    """Applied only for grading, after the agent's patch."""
    fail_to_pass: tuple[str, ...] = ()
    """Node ids as printed by pytest. Empty: every test defined in `script`."""
    pass_to_pass: tuple[str, ...] = ()
    test_files: tuple[str, ...] = ()
    """Further files that a patch must not change. Changes to the named tests and to `test_patch` never count."""
    test_command: str = ""
    """Command that runs the tests, with its options and without files, such as `pytest -W error`. Empty: `pytest`."""
    python: str = "python3"
    """Command that starts Python, as shell words. With an environment: `source .../activate env && python`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweProSpec:
    """Grading as in SWE-bench Pro: a run script and a parser of its output."""

    run_script: str
    parser: str
    """Source code of the parser."""
    selected_test_files: tuple[str, ...]
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...] = ()
    before_repo_set_cmd: str = ""
    """Its last line adds the tests and runs only for grading, after the patch. Earlier lines are in pre_commands."""
    parser_sha256: str = ""
    """Hash of `parser`, if the row pins it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    expected: Mapping[str, str] = field(default_factory=dict)
    """Test -> status in lower case. If set, exactly these tests must run, each with its status, including failures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweBenchSpec:
    """Grading by the `swebench` package."""

    instance: Mapping[str, Any]
    """The row as published."""


GraderSpec = EvalCmdSpec | F2pSpec | SweProSpec | SweBenchSpec
"""Specification of the grading. The agent never has access to it (law 5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task for an agent."""

    task_id: str
    problem_statement: str
    image: str
    """Image that the sandbox provider boots. `host` means this machine's read-only file system (provider `local`)."""
    workdir: str
    """Absolute path of the repository in the sandbox."""
    grader: GraderSpec
    files: Mapping[str, str] = field(default_factory=dict)
    """Files of the repository if the image does not contain it: path relative to `workdir` -> text."""
    pre_commands: tuple[str, ...] = ()
    """Lines of a bash script, run in `workdir` before the agent and before grading. A failing line is a SetupError."""
    hidden_paths: tuple[str, ...] = ()
    """Tests in the image (absolute paths or relative to `workdir`). Root removes them before the agent starts."""
    gold_patch: str | None = None
    """Correct solution for `job=validate`. The agent never has access to it."""
    label: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

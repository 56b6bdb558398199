"""A task: what an agent is asked to do, where, and how its work is judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderSpec:
    """How the work on a task is judged. Never in reach of the agent (law 5)."""

    eval_cmd: str
    """Shell command, run in `workdir` as the agent user after the patch is applied; exit code 0 = solved."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Hidden files, path relative to `workdir` -> text, written only in grading, after the patch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task."""

    task_id: str
    problem_statement: str
    image: str
    """What the sandbox provider boots; `host` is this machine's own read-only file system (provider `local`)."""
    workdir: str
    """Absolute path of the repository in the sandbox."""
    grader: GraderSpec
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that make up the repository when the image does not hold it: path relative to `workdir` -> text."""
    pre_commands: tuple[str, ...] = ()
    """Shell commands run in `workdir` before the agent and before grading; a failure is a SetupError."""
    label: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

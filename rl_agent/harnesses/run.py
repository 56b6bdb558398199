"""Shared parts of an agent run: prompt, PATH, time budget, last line of the output."""

from __future__ import annotations

import json
import string
from typing import TYPE_CHECKING, Any, Final

from rl_agent.errors import ConfigError, HarnessError
from rl_agent.harnesses.base import ExitReason, HarnessResult
from rl_agent.harnesses.cli_files import BIN_FOLDER, NODE_FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rl_agent.sandboxes.base import ExecResult, Sandbox
    from rl_agent.tasks.task import Task

PROMPT_FIELDS: Final = ("problem_statement", "task_id", "workdir")
PROMPT_BYTES: Final = 120_000
"""Linux limits an argument of a program to 128 KiB."""
STDERR_SHOWN: Final = 4000
PATH: Final = f"{BIN_FOLDER}:{NODE_FOLDER}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NOT_STARTED: Final = (126, 127)
"""bash's exit codes for a program that cannot be executed or found."""


def check_prompt(template: str) -> None:
    """Raise ConfigError if the template names a field that a task does not have."""
    try:
        names = {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
    except ValueError as error:
        raise ConfigError(f"harness.prompt: invalid template: {error}. Write {{{{ for a literal brace.") from None
    if unknown := names - set(PROMPT_FIELDS):
        raise ConfigError(f"harness.prompt: unknown fields {sorted(unknown)}. Use {', '.join(PROMPT_FIELDS)}.")


def check_tools(tools: list[str], known: tuple[str, ...], why: str) -> None:
    """Raise ConfigError for a tool that the CLI would silently ignore."""
    if unknown := [tool for tool in tools if tool not in known]:
        raise ConfigError(f"harness.tools: {why} {unknown}. Use {', '.join(known)}.")


def prompt(template: str, task: Task) -> str:
    """Return the agent's prompt. Raises HarnessError if it is too long for a program argument."""
    text = template.format(problem_statement=task.problem_statement, task_id=task.task_id, workdir=task.workdir)
    if len(text.encode()) > PROMPT_BYTES:
        raise HarnessError(f"task {task.task_id}: the prompt has {len(text.encode())} bytes, more than {PROMPT_BYTES}")
    return text


async def run_cli(
    sandbox: Sandbox, command: str, *, name: str, task: Task, env: Mapping[str, str], time_s: float
) -> tuple[ExecResult, Mapping[str, Any]]:
    """Run the CLI. Returns its result and its last JSON line (empty if there is none)."""
    result = await sandbox.exec(
        command, cwd=task.workdir, env={"SHELL": "/bin/bash", "PATH": PATH, **env}, timeout=time_s
    )
    last = last_line(result.stdout)
    if result.exit_code in NOT_STARTED and not last:
        raise HarnessError(f"{name} could not be started in sandbox {sandbox.id}: {_tail(result)}")
    return result, last


def last_line(output: bytes) -> Mapping[str, Any]:
    """Return the last line of JSON-lines output, or an empty mapping if the line is not a JSON object."""
    lines = output.rstrip().rsplit(b"\n", 1)
    try:
        value = json.loads(lines[-1])
    except (ValueError, RecursionError):  # any process in the sandbox may have written it
        return {}
    return value if isinstance(value, dict) else {}


def result_of(result: ExecResult, reason: ExitReason) -> HarnessResult:
    """Return the harness's result for a process that ended for `reason`."""
    return HarnessResult(
        exit_code=result.exit_code,
        reason=reason,
        transcript=result.stdout,
        stderr_tail=_tail(result),
        seconds=result.seconds,
    )


def _tail(result: ExecResult) -> str:
    return result.stderr[-STDERR_SHOWN:].decode(errors="replace")

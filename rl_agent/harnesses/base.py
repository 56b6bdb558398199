"""Contract of harnesses: each one runs an agent CLI headless in a sandbox against the adapter."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.sandboxes.base import Asset, Sandbox
    from rl_agent.tasks.task import Task


class ExitReason(StrEnum):
    """Reason that an agent process ended, derived from its exit code and output."""

    FINISHED = "finished"
    """Exit code 0."""
    TURN_LIMIT = "turn_limit"
    """The CLI reached its own turn limit."""
    API_ERROR = "api_error"
    """The CLI reported an API error. Graded if the adapter refused a request; otherwise the connection was lost."""
    CLI_ERROR = "cli_error"
    """Any other exit code. The work is graded anyway."""
    TIME_BUDGET = "time_budget"
    """The time budget ran out and the process group was killed. The work is graded anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of one agent run."""

    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessResult:
    """Result of an agent process, without the agent's work."""

    exit_code: int
    reason: ExitReason
    transcript: bytes
    """The CLI's machine-readable output (JSON lines), unchanged. The sandbox caps its length."""
    stderr_tail: str
    seconds: float
    """Wall-clock time of the CLI process."""


class Harness(Protocol):
    """An agent CLI. Built by `HarnessConfig.build`."""

    def find_assets(self) -> Sequence[Asset]:
        """Return the assets that a sandbox needs at boot. Raises HarnessError if the CLI was not fetched."""

    async def install(self, sandbox: Sandbox) -> None:
        """Write the configuration into the sandbox. Called once per sandbox, before `run`."""

    async def run(self, sandbox: Sandbox, *, task: Task, base_url: str, token: str, budget: Budget) -> HarnessResult:
        """Run the agent on `task` in `task.workdir` as user `agent` until it ends or its budget runs out.

        `base_url`: the session's address as seen from the sandbox, without the dialect's path (`/v1/messages`,
        `/responses`). `token`: the session's secret. Raises HarnessError only if the CLI cannot be started.
        """

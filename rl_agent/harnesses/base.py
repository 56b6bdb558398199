"""The contract of harnesses: one real agent CLI each, run headless in a sandbox against our adapter."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.sandboxes.base import Asset, Sandbox
    from rl_agent.tasks.task import Task


class ExitReason(StrEnum):
    """How an agent process ended, as reported by its exit code and output."""

    FINISHED = "finished"
    """Exit code 0."""
    TURN_LIMIT = "turn_limit"
    """The CLI's own limit on turns."""
    API_ERROR = "api_error"
    """The CLI gave up on its API, as it says: graded all the same where the adapter refused it something, else its connection was lost."""
    CLI_ERROR = "cli_error"
    """Any other exit code; the work is graded all the same."""
    TIME_BUDGET = "time_budget"
    """Its time budget was over: killed with its process group; the work is graded all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Bounds on one agent run."""

    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessResult:
    """Result of an agent run besides its work."""

    exit_code: int
    reason: ExitReason
    transcript: bytes
    """The CLI's own machine-readable output (JSON lines), as it came; capped by the sandbox."""
    stderr_tail: str
    seconds: float
    """Wall-clock time of the CLI process."""


class Harness(Protocol):
    """One agent CLI. Built by `HarnessConfig.build`."""

    def find_assets(self) -> Sequence[Asset]:
        """Return what a sandbox must be booted with. Raises HarnessError if the CLI was not fetched."""

    async def install(self, sandbox: Sandbox) -> None:
        """Put the configuration into the sandbox (once a sandbox, before `run`)."""

    async def run(self, sandbox: Sandbox, *, task: Task, base_url: str, token: str, budget: Budget) -> HarnessResult:
        """Run the agent on `task` in `task.workdir` as user `agent` until it ends or its budget is over.

        `base_url` is the session's address as the sandbox reaches it, without a dialect's own path (`/v1/messages`,
        `/responses`); `token` is the session's secret. Raises HarnessError only if the CLI could not be started at all.
        """

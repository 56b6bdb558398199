"""Contract of graders: from a task and a patch to a verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rl_agent.sandboxes.base import SandboxProvider
    from rl_agent.tasks.task import Task


class VerdictStatus(StrEnum):
    """Result of a submission."""

    SOLVED = "solved"
    FAILED = "failed"
    """The tests ran and did not pass."""
    EMPTY_DIFF = "empty_diff"
    """The submission changes nothing that reaches the tests. No sandbox was booted."""
    APPLY_FAILED = "apply_failed"
    """The patch does not apply to a clean copy, or exceeds a limit."""
    TIMEOUT = "timeout"
    """The tests exceeded `grader.timeout_s`. The reward is 0."""
    TAMPERED = "tampered"
    """The patch reaches outside the work tree, or it passes tests whose expectations are wrong."""
    INFRA_ERROR = "infra_error"
    """Grading failed. The rollout has no reward and never trains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Verdict on one submission."""

    status: VerdictStatus
    reward: float | None
    """None exactly when `status` is `infra_error` (law 4)."""
    tests_passed: int = 0
    tests_failed: int = 0
    log: str = ""
    """Output of the tests, truncated."""
    seconds: float = 0.0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """JSON-safe. Among others `dropped_paths` (path -> why it did not reach the tests), `signals` (name -> where it was seen),
    `tests_missed` (name -> outcome), `control` (finding and runs of the mixed runs), `setup_failed` (an `infra_error` that is the task's own fault), `applied` (which rung of the fallbacks applied the patch)."""

    @property
    def has_control(self) -> bool:
        """Return False if mixed runs were wanted, but no test of the task can be made wrong."""
        return bool(self.metadata.get("control", {}).get("finding") != "no_control")

    def __post_init__(self) -> None:
        if (self.reward is None) != (self.status is VerdictStatus.INFRA_ERROR):
            raise ValueError(
                f"a verdict has a reward unless it is infra_error; got {self.status} with reward {self.reward}"
            )


class Grader(Protocol):
    """Judges patches. Built by `GraderConfig.build`."""

    async def grade(self, task: Task, patch: bytes, provider: SandboxProvider, *, even_empty: bool = False) -> Verdict:
        """Apply `patch` to a clean copy of the task's repository in a fresh sandbox and run its tests there.

        An empty patch is `empty_diff` without a sandbox, unless `even_empty` (for `job=validate`).
        Infrastructure failures become `infra_error` after the grader's own retries; they are never a reward of 0.
        """

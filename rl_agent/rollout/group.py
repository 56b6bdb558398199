"""Rollouts: their slot in the data order, the request for one, its record, and the group of one task."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rl_agent.adapters.record import SessionStats
    from rl_agent.graders.base import Verdict
    from rl_agent.tasks.task import Task
    from rl_agent.tokens.segment import Segment


NO_EVALUATION: Final = -1


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Slot:
    """Place of one rollout in the data order, and the number of its attempt."""

    position: int
    """Position of the task in the data stream."""
    member: int
    """Number of the rollout within its group."""
    attempt: int = 0
    evaluation: int = NO_EVALUATION
    """Version of the weights under evaluation. `position` then counts held-out tasks."""

    @property
    def first(self) -> Slot:
        """The slot of the first attempt: the key of everything that all attempts share."""
        return replace(self, attempt=0)

    @property
    def next(self) -> Slot:
        """The slot of the next attempt."""
        return replace(self, attempt=self.attempt + 1)

    @property
    def group_id(self) -> str:
        """Id of the group. An evaluation rollout is a group of its own."""
        if self.evaluation == NO_EVALUATION:
            return f"{self.position:06d}"
        return f"eval{self.evaluation:05d}-{self.position:04d}"

    @property
    def rollout_id(self) -> str:
        """Id of the rollout. All attempts share it."""
        return f"{self.group_id}-{self.member:02d}" if self.evaluation == NO_EVALUATION else self.group_id


class AbortReason(StrEnum):
    """Reason for which an agent run has no verdict. Its tokens never train, and no statistics include it."""

    SANDBOX_ERROR = "sandbox_error"
    """The sandbox did not boot, or was lost. Retried."""
    ENGINE_ERROR = "engine_error"
    """The engine failed. Retried."""
    WORKER_LOST = "worker_lost"
    """The process that ran the episode was lost. Retried."""
    SETUP_ERROR = "setup_error"
    """The setup of the task's image or workspace failed. This is a fault of the task."""
    HARNESS_ERROR = "harness_error"
    """The agent CLI could not be started."""
    CAPTURE_ERROR = "capture_error"
    """The work of the agent could not be captured as a diff."""
    EMPTY_SESSION = "empty_session"
    """The agent exited without a request to the policy. Retried."""
    WALL_CLOCK_TIMEOUT = "wall_clock_timeout"
    """The time limit of the whole rollout was exceeded."""
    BUG = "bug"
    """An internal error. Its traceback is in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRequest:
    """Request to run the agent once."""

    task: Task
    slot: Slot
    greedy: bool = False
    """Sample at temperature 0, as a baseline for the others of the group."""
    ungraded: Rollout | None = None
    """Result of the previous attempt if only its grading failed. It is graded again; the agent does not run again."""

    @property
    def rollout_id(self) -> str:
        """Id of the rollout. All attempts share it."""
        return self.slot.rollout_id

    @property
    def group_id(self) -> str:
        """Id of the group."""
        return self.slot.group_id

    @property
    def attempt(self) -> int:
        """Number of the attempt, from 0."""
        return self.slot.attempt

    def again(self, failed: Rollout) -> EpisodeRequest:
        """Return the request for the next attempt. A verdict on the failed one means that only grading failed."""
        return replace(self, slot=self.slot.next, ungraded=failed if failed.verdict is not None else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """Record of one agent run."""

    rollout_id: str
    group_id: str
    task_id: str
    attempt: int
    verdict: Verdict | None
    """None if and only if `abort` is set."""
    abort: AbortReason | None = None
    detail: str = ""
    """Error message of an aborted run."""
    segments: tuple[Segment, ...] = ()
    sampled_tokens: int = 0
    excluded: Mapping[str, int] = field(default_factory=dict)
    """Reason -> sampled tokens that do not train (law 1)."""
    forks: Mapping[str, int] = field(default_factory=dict)
    """Reason -> number of times that a conversation could not be continued as one chain."""
    turns: tuple[str, ...] = ()
    """The text of each turn, as sampled."""
    exit_code: int | None = None
    exit_reason: str = ""
    patch: bytes = b""
    stats: SessionStats | None = None
    """Statistics of the session, or None without one."""
    greedy: bool = False
    """Sampled at temperature 0 as a baseline. It never trains."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Stage -> wall-clock time: boot, agent, capture, grade, total."""
    sandbox: Mapping[str, float] = field(default_factory=dict)
    """Metrics of the worker's sandboxes during the rollout, see `sandboxes.meter.Meter`. Only sums over a step are
    meaningful."""

    @property
    def status(self) -> str:
        """Status of the verdict, or reason of the abort."""
        if self.verdict is not None:
            return str(self.verdict.status)
        return str(self.abort)

    @property
    def reward(self) -> float | None:
        """Reward, or None if no statistics may include the rollout (law 4)."""
        return None if self.verdict is None else self.verdict.reward

    @property
    def trained_tokens(self) -> int:
        """Number of sampled tokens that train."""
        return sum(segment.trained for segment in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """All rollouts of one task in one step."""

    group_id: str
    task: Task
    rollouts: tuple[Rollout, ...]


def aborted(request: EpisodeRequest, reason: AbortReason, detail: str) -> Rollout:
    """Return the rollout of an episode that returned nothing."""
    return Rollout(
        rollout_id=request.rollout_id,
        group_id=request.group_id,
        task_id=request.task.task_id,
        attempt=request.attempt,
        verdict=None,
        abort=reason,
        detail=detail,
        greedy=request.greedy,
    )

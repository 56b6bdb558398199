"""Episodes: one agent run on one task, from an empty sandbox to a graded rollout."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from rl_agent.errors import EngineError, GraderError, HarnessError, RlAgentError, SandboxError, SetupError
from rl_agent.harnesses.base import Budget, ExitReason
from rl_agent.rollout.group import AbortReason, Rollout
from rl_agent.workspace.capture import capture
from rl_agent.workspace.workspace import booted, prepare

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rl_agent.adapters.record import SessionRecord, SessionStats
    from rl_agent.adapters.server import AdapterServer
    from rl_agent.graders.base import Grader, Verdict
    from rl_agent.harnesses.base import Harness, HarnessResult
    from rl_agent.rollout.group import EpisodeRequest
    from rl_agent.sandboxes.base import Asset, Sandbox, SandboxProvider

log = logging.getLogger(__name__)

_REASONS: Final[dict[type[RlAgentError], AbortReason]] = {
    SandboxError: AbortReason.SANDBOX_ERROR,
    EngineError: AbortReason.ENGINE_ERROR,
    SetupError: AbortReason.SETUP_ERROR,
    HarnessError: AbortReason.HARNESS_ERROR,
    GraderError: AbortReason.CAPTURE_ERROR,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeLimits:
    """Time limits of one episode, in seconds."""

    agent_s: float
    workspace_s: float
    sandbox_s: float
    """Lifetime of the agent's sandbox."""
    guard_s: float
    """Limit of the whole episode."""


@dataclass(slots=True)
class _Trace:
    """Results of an episode so far. An aborted rollout keeps them."""

    stage: str = "boot"
    seconds: dict[str, float] = field(default_factory=dict)
    record: SessionRecord | None = None
    result: HarnessResult | None = None
    patch: bytes = b""

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        self.stage = stage
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = time.perf_counter() - started


class EpisodeRunner:
    """Runner of concurrent episodes. It holds everything that they share."""

    def __init__(
        self,
        *,
        provider: SandboxProvider,
        harness: Harness,
        assets: Sequence[Asset],
        grader: Grader,
        adapter: AdapterServer,
        advertise_host: str | None,
        limits: EpisodeLimits,
    ) -> None:
        """`assets`: of the harness.

        `advertise_host`: the adapter's address for sandboxes; None: the result of `Sandbox.expose`.
        """
        self._provider = provider
        self._harness = harness
        self._assets = assets
        self._grader = grader
        self._adapter = adapter
        self._advertise_host = advertise_host
        self._limits = limits

    async def run(self, request: EpisodeRequest) -> Rollout:
        """Run the agent once. Infrastructure and task errors give an aborted rollout; internal errors are raised.

        If the request carries an ungraded rollout, it is graded again and the agent does not run.
        """
        if request.ungraded is not None:
            return await self._grade_again(request, request.ungraded)
        trace = _Trace()
        verdict: Verdict | None = None
        abort: AbortReason | None = None
        detail = ""
        started = time.perf_counter()
        guard = asyncio.timeout(self._limits.guard_s)
        try:
            async with guard:
                await self._agent(request, trace)
                if trace.record is None or not trace.record.turns:
                    abort = AbortReason.EMPTY_SESSION
                    detail = trace.result.stderr_tail if trace.result else ""
                else:
                    with trace.timed("grade"):
                        verdict = await self._grader.grade(request.task, trace.patch, self._provider)
        except TimeoutError:
            if not guard.expired():
                raise
            abort = AbortReason.WALL_CLOCK_TIMEOUT
            detail = f"{time.perf_counter() - started:.0f} s, in stage {trace.stage}; stages so far: {trace.seconds}"
        except (SandboxError, EngineError, SetupError, HarnessError, GraderError) as error:
            abort, detail = _reason(error), str(error)
        trace.seconds["total"] = time.perf_counter() - started
        return _rollout(request, trace, verdict, abort, detail)

    async def _grade_again(self, request: EpisodeRequest, left: Rollout) -> Rollout:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self._limits.guard_s):
                verdict = await self._grader.grade(request.task, left.patch, self._provider)
        except (TimeoutError, SandboxError, EngineError, SetupError, HarnessError, GraderError) as error:
            log.info("grading %s again failed too: %r", request.rollout_id, error)
            return replace(left, attempt=request.attempt)  # the verdict stays infra_error
        seconds = {**left.seconds, "grade": time.perf_counter() - started}
        return replace(left, attempt=request.attempt, verdict=verdict, seconds=seconds)

    async def _agent(self, request: EpisodeRequest, trace: _Trace) -> None:
        """Boot a sandbox, prepare it, run the agent and capture its work. The sandbox is closed before grading."""
        task, limits = request.task, self._limits
        async with AsyncExitStack() as stack:
            with trace.timed("boot"):
                boot = booted(
                    self._provider,
                    task,
                    assets=self._assets,
                    lifetime_s=limits.sandbox_s,
                    labels={"rollout": request.rollout_id},
                )
                sandbox = await stack.enter_async_context(boot)
            with trace.timed("prepare"):
                workspace = await prepare(sandbox, task, timeout_s=limits.workspace_s)
                await self._harness.install(sandbox)
            with trace.timed("agent"):
                await self._converse(sandbox, request, trace)
            with trace.timed("capture"):
                trace.patch = await capture(sandbox, workspace, timeout_s=limits.workspace_s)

    async def _converse(self, sandbox: Sandbox, request: EpisodeRequest, trace: _Trace) -> None:
        """Run the agent within a session of the adapter."""
        session = self._adapter.open_session(f"{request.rollout_id}-{request.attempt}", greedy=request.greedy)
        try:
            origin = await self._origin(sandbox)
            trace.result = await self._harness.run(
                sandbox,
                task=request.task,
                base_url=origin + session.base_path,
                token=session.token,
                budget=Budget(time_s=self._limits.agent_s),
            )
        finally:
            trace.record = await self._adapter.close_session(session.id)
        if trace.record.failure is not None:
            raise trace.record.failure
        if trace.record.turns and trace.result.reason is ExitReason.API_ERROR and not _refused(trace.record.stats):
            raise SandboxError(
                f"in sandbox {sandbox.id}, the agent lost its connection to the adapter after {len(trace.record.turns)} turns: "
                f"{trace.result.transcript[-500:].decode(errors='replace')}"
            )

    async def _origin(self, sandbox: Sandbox) -> str:
        if self._advertise_host is not None:
            return f"http://{self._advertise_host}:{self._adapter.port}"
        return await sandbox.expose(self._adapter.port)


def _refused(stats: SessionStats) -> bool:
    """Return whether the adapter answered with errors after which the agent may still have finished normally."""
    return bool(stats.context_full or stats.turn_limit or stats.malformed_requests or stats.overloaded)


def _reason(error: RlAgentError) -> AbortReason:
    return next(reason for kind, reason in _REASONS.items() if isinstance(error, kind))


def _rollout(
    request: EpisodeRequest, trace: _Trace, verdict: Verdict | None, abort: AbortReason | None, detail: str
) -> Rollout:
    record, result = trace.record, trace.result
    return Rollout(
        rollout_id=request.rollout_id,
        group_id=request.group_id,
        task_id=request.task.task_id,
        attempt=request.attempt,
        verdict=verdict,
        abort=abort,
        detail=detail,
        segments=record.segments if record else (),
        sampled_tokens=record.sampled_tokens if record else 0,
        excluded=dict(record.excluded) if record else {},
        forks=dict(record.forks) if record else {},
        turns=record.turns if record else (),
        exit_code=result.exit_code if result else None,
        exit_reason=str(result.reason) if result else "",
        patch=trace.patch,
        stats=record.stats if record else None,
        greedy=request.greedy,
        seconds=trace.seconds,
    )

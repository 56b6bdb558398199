"""An episode leaves a rollout whatever breaks, with what was sampled so far; the sandbox is always closed."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.adapters.record import SessionStats
from rl_agent.errors import EngineError, LawError, SandboxError, SetupError
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.harnesses.base import ExitReason, HarnessResult
from rl_agent.rollout import episode
from rl_agent.rollout.episode import EpisodeLimits, EpisodeRunner
from rl_agent.rollout.group import EpisodeRequest, Slot
from rl_agent.tasks.task import EvalCmdSpec, Task

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rl_agent.rollout.group import Rollout

TASK = Task(task_id="t", problem_statement="Fix it.", image="host", workdir="/w", grader=EvalCmdSpec(eval_cmd="true"))


class World:
    """Provider, harness, grader and adapter in one; each stage can be made to fail, or to wait for ever."""

    assets = ()
    id = "world"
    port = 1

    def __init__(self, **fails: BaseException | str) -> None:
        self.fails = fails
        self.open = 0
        self.graded: list[bytes] = []
        self.turns: tuple[str, ...] = ("look", "edit")
        self.failure: Exception | None = None
        self.reason = ExitReason.FINISHED
        self.stats = SessionStats()

    async def reach(self, stage: str) -> None:
        what = self.fails.get(stage)
        if isinstance(what, BaseException):
            raise what
        if what == "hangs":
            await asyncio.Event().wait()

    @asynccontextmanager
    async def boot(self, image: str, **_: Any) -> AsyncIterator[World]:
        await self.reach("boot")
        self.open += 1
        try:
            yield self
        finally:
            self.open -= 1

    async def expose(self, port: int) -> str:
        return f"http://127.0.0.1:{port}"

    async def install(self, sandbox: World) -> None: ...

    async def run(self, sandbox: World, **_: Any) -> HarnessResult:
        await self.reach("agent")
        return HarnessResult(exit_code=0, reason=self.reason, transcript=b"", stderr_tail="silent", seconds=1.0)

    async def grade(self, task: Task, patch: bytes, provider: World) -> Verdict:
        await self.reach("grade")
        assert self.open == 0, "the agent's sandbox must be gone before grading"
        self.graded.append(patch)
        return Verdict(status=VerdictStatus.SOLVED, reward=1.0)

    def open_session(self, name: str, *, greedy: bool) -> Any:
        self.greedy = greedy
        return SimpleNamespace(id=name, token="secret", base_path="/s/1")

    async def close_session(self, session_id: str) -> Any:
        return SimpleNamespace(
            segments=(),
            turns=self.turns,
            sampled_tokens=5,
            excluded={},
            forks={},
            stats=self.stats,
            failure=self.failure,
        )


async def run(
    world: World, monkeypatch: pytest.MonkeyPatch, guard_s: float = 30.0, ungraded: Rollout | None = None
) -> Rollout:
    async def prepare(*_: Any, **__: Any) -> str:
        await world.reach("prepare")
        return "workspace"

    async def capture(*_: Any, **__: Any) -> bytes:
        await world.reach("capture")
        return b"diff"

    monkeypatch.setattr(episode, "prepare", prepare)
    monkeypatch.setattr(episode, "capture", capture)
    anything: Any = world
    runner = EpisodeRunner(
        provider=anything,
        harness=anything,
        assets=anything.assets,
        grader=anything,
        adapter=anything,
        advertise_host=None,
        limits=EpisodeLimits(agent_s=10, workspace_s=10, sandbox_s=30, guard_s=guard_s),
    )
    request = EpisodeRequest(
        task=TASK, slot=Slot(position=0, member=0, attempt=int(ungraded is not None)), ungraded=ungraded
    )
    rollout = await runner.run(request)
    assert world.open == 0, "a sandbox was left open"
    return rollout


async def test_an_agent_that_lost_its_connection_is_not_graded(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.reason = ExitReason.API_ERROR
    rollout = await run(world, monkeypatch)
    assert (rollout.status, rollout.reward, rollout.sampled_tokens, world.graded) == ("sandbox_error", None, 5, [])
    assert "lost its connection to the adapter after 2 turns" in rollout.detail


@pytest.mark.parametrize("counted", ["context_full", "turn_limit", "malformed_requests", "overloaded"])
async def test_an_agent_that_ends_because_the_adapter_refused_something_is_graded(
    counted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    world.reason, world.stats = ExitReason.API_ERROR, SessionStats(**{counted: 1})
    assert (await run(world, monkeypatch)).status == "solved"
    assert world.graded == [b"diff"]


async def test_only_the_diff_crosses_to_grading(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    rollout = await run(world, monkeypatch)
    assert (rollout.status, rollout.reward, rollout.sampled_tokens) == ("solved", 1.0, 5)
    assert world.graded == [b"diff"]
    assert {"boot", "prepare", "agent", "capture", "grade", "total"} == set(rollout.seconds)


@pytest.mark.parametrize(
    ("stage", "error", "status", "sampled"),
    [
        ("boot", SandboxError("no box"), "sandbox_error", 0),
        ("prepare", SetupError("pre_commands failed"), "setup_error", 0),
        ("agent", SandboxError("lost"), "sandbox_error", 5),
        ("capture", SandboxError("lost"), "sandbox_error", 5),
    ],
)
async def test_a_failure_is_an_abort_without_a_reward_that_keeps_what_was_sampled(
    stage: str, error: Exception, status: str, sampled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout = await run(World(**{stage: error}), monkeypatch)
    assert (rollout.status, rollout.reward, rollout.detail) == (status, None, str(error))
    assert rollout.sampled_tokens == sampled


async def test_an_engine_failure_behind_the_agents_back_is_never_graded(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.failure = EngineError("vLLM is gone")
    rollout = await run(world, monkeypatch)
    assert rollout.status == "engine_error"
    assert world.graded == []


async def test_a_broken_law_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.failure = LawError("a token was counted twice")
    with pytest.raises(LawError):
        await run(world, monkeypatch)


async def test_an_agent_that_asked_nothing_is_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.turns = ()
    rollout = await run(world, monkeypatch)
    assert (rollout.status, rollout.reward, rollout.detail) == ("empty_session", None, "silent")


@pytest.mark.parametrize("stage", ["boot", "prepare", "agent", "capture", "grade"])
async def test_the_guard_ends_any_stage_and_names_it(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rollout = await run(World(**{stage: "hangs"}), monkeypatch, guard_s=0.05)
    assert rollout.status == "wall_clock_timeout"
    assert f"in stage {stage}" in rollout.detail


async def test_a_timeout_that_is_not_the_guards_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TimeoutError):
        await run(World(prepare=TimeoutError()), monkeypatch)


async def test_when_only_grading_failed_it_is_all_that_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = await run(World(), monkeypatch)
    ungraded = replace(first, verdict=Verdict(status=VerdictStatus.INFRA_ERROR, reward=None))
    world = World(boot=AssertionError("the agent must not run again"))
    second = await run(world, monkeypatch, ungraded=ungraded)
    assert world.graded == [b"diff"]
    assert (second.status, second.reward, second.attempt) == ("solved", 1.0, 1)
    assert (second.turns, second.sampled_tokens) == (first.turns, first.sampled_tokens)


@pytest.mark.parametrize("fault", ["hangs", SandboxError("no box")], ids=str)
async def test_grading_that_fails_again_is_no_reward(
    fault: str | SandboxError, monkeypatch: pytest.MonkeyPatch
) -> None:
    ungraded = replace(await run(World(), monkeypatch), verdict=Verdict(status=VerdictStatus.INFRA_ERROR, reward=None))
    again = await run(World(grade=fault), monkeypatch, guard_s=0.05, ungraded=ungraded)
    assert (again.status, again.reward, again.patch) == ("infra_error", None, b"diff")

"""The retry loop: it pauses between attempts, hands on what grading left undone, and returns the final attempt."""

from __future__ import annotations

from typing import Any

from rl_agent.config.rollout import FailuresConfig
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.rollout.attempts import run_attempts, run_episode_attempts
from rl_agent.rollout.failures import LONGEST_PAUSE_S, FailurePolicy, backoff_s
from rl_agent.rollout.group import AbortReason, EpisodeRequest, Rollout, Slot
from rl_agent.tasks.task import EvalCmdSpec, Task

TASK = Task(task_id="t", problem_statement="", image="host", workdir="/w", grader=EvalCmdSpec(eval_cmd="true"))
INFRA = Verdict(status=VerdictStatus.INFRA_ERROR, reward=None)


def test_the_pause_doubles_up_to_a_limit() -> None:
    assert [backoff_s(2.0, failures) for failures in range(5)] == [2.0, 2.0, 4.0, 8.0, 16.0]
    assert backoff_s(2.0, 50) == LONGEST_PAUSE_S
    assert backoff_s(0.0, 50) == 0.0


async def test_attempts_go_on_until_one_is_final() -> None:
    events: list[tuple[str, int]] = []

    async def run(number: int) -> str:
        events.append(("run", number))
        return "done" if number == 2 else "failed"

    async def rest(number: int, result: str, pause_s: float) -> None:
        assert result == "failed"
        events.append(("rest", int(pause_s)))

    final = await run_attempts(
        0,
        run,
        pause_s=lambda number, result: None if result == "done" else 10.0 + number,
        rest=rest,
        again=lambda number, _: number + 1,
    )
    assert final == (2, "done")
    assert events == [("run", 0), ("rest", 10), ("run", 1), ("rest", 11), ("run", 2)]


async def test_only_an_attempt_whose_grading_failed_is_handed_on() -> None:
    asked: list[tuple[int, bool]] = []
    pauses: list[float] = []
    outcomes: list[dict[str, Any]] = [
        {"verdict": INFRA, "patch": b"work"},
        {"verdict": None, "abort": AbortReason.SANDBOX_ERROR},
        {"verdict": Verdict(status=VerdictStatus.SOLVED, reward=1.0)},
    ]

    async def run(request: EpisodeRequest) -> Rollout:
        asked.append((request.attempt, request.ungraded is not None))
        names: dict[str, Any] = {"rollout_id": request.rollout_id, "group_id": request.group_id, "task_id": "t"}
        return Rollout(**names, attempt=request.attempt, **outcomes[request.attempt])

    async def rest(_: EpisodeRequest, __: Rollout, pause_s: float) -> None:
        pauses.append(pause_s)

    failures = FailurePolicy(FailuresConfig(backoff_s=2.0), retries=3)
    request, rollout = await run_episode_attempts(
        EpisodeRequest(task=TASK, slot=Slot(position=3, member=1)), run, failures, rest
    )
    assert (request.slot, rollout.reward) == (Slot(position=3, member=1, attempt=2), 1.0)
    assert rollout.rollout_id == "000003-01"
    assert asked == [(0, False), (1, True), (2, False)]
    assert pauses == [2.0, 4.0]


def test_an_evaluation_rollout_has_an_id_of_its_own() -> None:
    slot = Slot(position=3, member=0, evaluation=12)
    assert (slot.group_id, slot.rollout_id) == ("eval00012-0003", "eval00012-0003")

"""What breaks a rollout decides whether it is tried again; an outage is waited out; too many broken rollouts end the run."""

from __future__ import annotations

from typing import Any

import pytest

from rl_agent.config.rollout import FailuresConfig
from rl_agent.engine.base import EngineLoad
from rl_agent.errors import InfraError, LawError
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.rollout.breaker import Breaker
from rl_agent.rollout.concurrency import AdaptiveLimit
from rl_agent.rollout.failures import FailurePolicy
from rl_agent.rollout.group import AbortReason, EpisodeRequest, Rollout, Slot
from rl_agent.tasks.task import EvalCmdSpec, Task


def slot(position: int = 0, member: int = 0) -> Slot:
    return Slot(position=position, member=member)


def rollout(
    abort: AbortReason | None = None, *, status: VerdictStatus = VerdictStatus.SOLVED, **metadata: Any
) -> Rollout:
    verdict = None
    if abort is None:
        reward = None if status is VerdictStatus.INFRA_ERROR else 1.0
        verdict = Verdict(status=status, reward=reward, metadata=metadata)
    return Rollout(
        rollout_id="r",
        group_id="g",
        task_id="t",
        attempt=0,
        verdict=verdict,
        abort=abort,
        detail="503 from the gateway",
    )


def policy(**options: Any) -> FailurePolicy:
    return FailurePolicy(FailuresConfig(**options), retries=2)


BROKEN = rollout(AbortReason.SANDBOX_ERROR)


def test_infrastructure_is_tried_again_after_growing_pauses_and_then_given_up() -> None:
    failures = policy(backoff_s=3.0)
    assert [failures.observe(slot(), BROKEN, now) for now in (0.0, 10.0, 20.0)] == [3.0, 6.0, None]


@pytest.mark.parametrize(
    "final",
    [
        rollout(AbortReason.SETUP_ERROR),
        rollout(AbortReason.WALL_CLOCK_TIMEOUT),
        rollout(AbortReason.HARNESS_ERROR),
        rollout(AbortReason.BUG),
        rollout(status=VerdictStatus.FAILED),
        rollout(status=VerdictStatus.INFRA_ERROR, setup_failed=True),
    ],
    ids=lambda value: value.status,
)
def test_what_another_attempt_cannot_help_is_final(final: Rollout) -> None:
    assert policy().observe(slot(), final, 0.0) is None


@pytest.mark.parametrize(
    "broken",
    [
        *(
            rollout(abort)
            for abort in (
                AbortReason.SANDBOX_ERROR,
                AbortReason.ENGINE_ERROR,
                AbortReason.WORKER_LOST,
                AbortReason.CAPTURE_ERROR,
                AbortReason.EMPTY_SESSION,
            )
        ),
        rollout(status=VerdictStatus.INFRA_ERROR),
    ],
    ids=lambda value: value.status,
)
def test_what_infrastructure_broke_is_tried_again(broken: Rollout) -> None:
    assert policy().observe(slot(), broken, 0.0) is not None


def test_an_outage_costs_no_attempts_and_lets_rollouts_back_in_little_by_little() -> None:
    failures = policy(outage_after=3, outage_probe_s=10.0)
    for position in range(3):
        assert failures.observe(slot(position), BROKEN, 0.0) is not None
    assert failures.limit(1.0) == 0
    for attempt in range(20):
        assert failures.observe(slot(0), BROKEN, float(attempt)) is not None, "tries do not count in an outage"
    assert [failures.limit(19.0 + waited) for waited in (9.0, 10.0, 20.0, 30.0)] == [0, 1, 2, 4]
    assert failures.observe(slot(0), rollout(), 60.0) is None
    assert failures.limit(60.0) is None
    assert failures.metrics(60.0)["failures/sandbox_outage_seconds"] == 60.0


def test_one_task_that_breaks_every_sandbox_is_no_outage() -> None:
    failures = policy(outage_after=3)
    ends = [failures.observe(slot(7, member), BROKEN, 0.0) for _ in range(3) for member in range(8)]
    assert ends[-8:] == [None] * 8
    assert failures.limit(0.0) is None


def test_an_agent_that_cannot_work_at_all_ends_the_run_instead_of_being_waited_for() -> None:
    failures = policy(outage_after=2)

    def run() -> None:
        for position in range(40):
            for _ in range(3):
                failures.observe(slot(position), rollout(AbortReason.EMPTY_SESSION), 0.0)
                assert failures.limit(0.0) is None

    with pytest.raises(InfraError, match=r"max_error_rate.*empty_session"):
        run()


def test_failures_that_are_not_in_a_row_are_no_outage() -> None:
    breaker = Breaker(after=3, probe_s=10.0)
    for position in range(20):
        breaker.failure(position, 0.0)
        if position % 2:
            breaker.success(0.0)
    assert breaker.limit(0.0) is None


def test_an_outage_that_does_not_end_ends_the_run_and_says_of_what() -> None:
    failures = policy(outage_limit_s=600.0)
    for position in range(4):
        failures.observe(slot(position), BROKEN, 0.0)
    for now in range(100, 600, 99):
        failures.observe(slot(0), BROKEN, float(now))
    assert failures.limit(599.0) == 0
    with pytest.raises(
        InfraError, match=r"outage_limit_s=.*the sandbox has not worked for 601 s.*503 from.*Fix the cause"
    ):
        failures.limit(601.0)


def test_too_many_broken_rollouts_end_the_run_with_what_they_said() -> None:
    failures = policy(max_error_rate=0.5, window=40)

    def run() -> None:
        for position in range(40):
            failures.observe(slot(position), rollout(AbortReason.HARNESS_ERROR) if position % 3 else rollout(), 0.0)

    with pytest.raises(
        InfraError, match=r"max_error_rate=0.5: \d+ of the last \d+ rollouts .*harness_error x\d+: 503 from"
    ):
        run()


@pytest.mark.parametrize(
    "broken", [rollout(AbortReason.SETUP_ERROR), rollout(status=VerdictStatus.INFRA_ERROR, setup_failed=True)]
)
def test_where_no_task_can_be_set_up_the_run_ends_and_none_is_tried_again(broken: Rollout) -> None:
    failures = policy(max_error_rate=0.5, window=40)
    for position in range(19):
        assert failures.observe(slot(position), broken, 0.0) is None
    with pytest.raises(InfraError, match=r"max_error_rate=0.5: 20 of the last 20 rollouts"):
        failures.observe(slot(20), broken, 0.0)


def test_a_minority_of_broken_rollouts_does_not_end_the_run() -> None:
    failures = policy(max_error_rate=0.5, window=40)
    for position in range(200):
        failures.observe(slot(position), rollout() if position % 3 else rollout(AbortReason.HARNESS_ERROR), 0.0)


async def test_a_bug_breaks_its_rollout_only_and_too_many_are_raised() -> None:
    failures = policy(max_bugs=2)
    task = Task(task_id="t", problem_statement="", image="host", workdir="/w", grader=EvalCmdSpec(eval_cmd="true"))
    request = EpisodeRequest(task=task, slot=Slot(position=0, member=0, attempt=3))

    async def buggy(request: EpisodeRequest) -> Rollout:
        raise ZeroDivisionError(request.rollout_id)

    for _ in range(2):
        broken = await failures.contained(buggy, request)
        assert (broken.status, broken.reward, broken.attempt, broken.detail) == (
            "bug",
            None,
            3,
            "ZeroDivisionError('000000-00')",
        )
    assert failures.metrics(0.0)["failures/bugs"] == 2.0
    with pytest.raises(ZeroDivisionError):
        await failures.contained(buggy, request)


async def test_a_broken_law_is_no_bug_to_live_with() -> None:
    async def lawless(request: EpisodeRequest) -> Rollout:
        raise LawError("a token counted twice")

    with pytest.raises(LawError):
        await policy().contained(lawless, None)  # type: ignore[arg-type]


def test_concurrency_follows_the_engine() -> None:
    limit = AdaptiveLimit(least=4, most=64, value=32)
    busy = EngineLoad(kv_cache_usage=0.5, running=20, waiting=3)
    assert limit.observe(busy, running=32) == 27
    for _ in range(10):
        assert limit.observe(busy, running=27) == 27, "a change must show before the next"
    free = EngineLoad(kv_cache_usage=0.3, running=20, waiting=0)
    assert limit.observe(free, running=20) == 27, "there is room already that nobody uses"
    assert limit.observe(free, running=27) == 28
    for _ in range(2000):
        limit.observe(free, running=limit.value)
    assert limit.value == 64
    for _ in range(2000):
        limit.observe(EngineLoad(kv_cache_usage=0.99, running=20, waiting=0), running=limit.value)
    assert limit.value == 4

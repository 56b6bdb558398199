"""A group is replaced exactly when shaping would leave it out of the batch."""

from __future__ import annotations

import pytest

from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.rollout.algo_requirements import REASON, dropped_groups
from rl_agent.rollout.group import Rollout
from tests.unit.config.test_composition import composed


def rollouts(*rewards: float | None, greedy: float | None = None) -> list[Rollout]:
    pairs = [(reward, False) for reward in rewards] + ([] if greedy is None else [(greedy, True)])
    return [
        Rollout(
            rollout_id=str(number),
            group_id="g",
            task_id="t",
            attempt=0,
            verdict=Verdict(
                status=VerdictStatus.INFRA_ERROR if reward is None else VerdictStatus.FAILED, reward=reward
            ),
            greedy=is_greedy,
        )
        for number, (reward, is_greedy) in enumerate(pairs)
    ]


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        (rollouts(1.0, 0.0), None),
        (rollouts(1.0, 1.0), REASON),
        (rollouts(0.0, None), REASON),
        (rollouts(None, None), None),
        (rollouts(1.0, 1.0, greedy=0.0), None),
        (rollouts(1.0, 1.0, greedy=1.0), REASON),
    ],
    ids=["mixed", "equal", "one reward", "no reward", "a baseline that differs", "a baseline like the rest"],
)
def test_only_groups_with_nothing_to_compare_are_dropped(group: list[Rollout], reason: str | None) -> None:
    assert dropped_groups(composed("algo=dapo").algo)(group) == reason


def test_an_algorithm_that_filters_nothing_drops_nothing() -> None:
    assert dropped_groups(composed().algo)(rollouts(1.0, 1.0)) is None

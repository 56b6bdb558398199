"""GRPO's advantages against vectors worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from algo_cases import algorithm, batch
from hypothesis import given
from hypothesis import strategies as st

from rl_agent.algo.advantage.grpo import group_advantages
from rl_agent.config.algo import ConstantAdvantageConfig, GrpoAdvantageConfig, SegmentCredit


def of(rewards: list[float], groups: list[int], *, divide_by_std: bool = True) -> list[float]:
    got = group_advantages(
        np.array(rewards, dtype=np.float32), np.array(groups, dtype=np.int32), divide_by_std=divide_by_std, epsilon=1e-6
    )
    return [float(x) for x in got]


def test_the_advantage_is_the_distance_from_the_groups_mean_in_standard_deviations() -> None:
    # mean 0.5, squares 4 * 0.25 = 1, unbiased variance 1/3, std 0.57735: 0.5 / 0.57735 = 0.866025
    assert of([1, 0, 0, 1], [0, 0, 0, 0]) == pytest.approx([0.866025, -0.866025, -0.866025, 0.866025], abs=1e-5)


def test_without_the_standard_deviation_it_is_the_distance_alone() -> None:
    # groups 6,3 (mean 4.5), 9,12 (mean 10.5) and a single 1
    got = of([6, 3, 9, 12, 1], [0, 0, 1, 1, 2], divide_by_std=False)
    assert got == pytest.approx([1.5, -1.5, -1.5, 1.5, 0])


@pytest.mark.parametrize("divide_by_std", [True, False])
def test_a_group_of_one_says_nothing(divide_by_std: bool) -> None:
    assert of([5.0], [3], divide_by_std=divide_by_std) == [0.0]


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1])
def test_a_group_without_variance_says_nothing(reward: float) -> None:
    assert of([reward] * 3, [0, 0, 0]) == [0.0, 0.0, 0.0]


@given(
    rewards=st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=12),
    seed=st.integers(0, 99),
)
def test_the_order_of_the_rollouts_does_not_matter(rewards: list[float], seed: int) -> None:
    groups = [i % 3 for i in range(len(rewards))]
    order = np.random.default_rng(seed).permutation(len(rewards))
    shuffled = of([rewards[i] for i in order], [groups[i] for i in order])
    assert shuffled == pytest.approx([of(rewards, groups)[i] for i in order], abs=1e-6)


def test_statistics_are_over_rollouts_however_many_segments_each_has() -> None:
    # rollout 0 (reward 1) has three segments, rollout 1 (reward 0) one: the mean stays 0.5
    many = batch([(0, [0, 1]), (0, [0, 1]), (0, [0, 1]), (1, [0, 1, 1])], rewards=[1, 0])
    got = algorithm(advantage=GrpoAdvantageConfig(divide_by_std=False)).advantages(many)
    assert got.tolist() == [0.5] * 6 + [-0.5] * 3


def test_divided_credit_gives_each_of_k_segments_one_kth() -> None:
    many = batch([(0, [0, 1]), (0, [0, 1]), (1, [0, 1])], rewards=[1, 0])
    divided = algorithm(
        advantage=GrpoAdvantageConfig(divide_by_std=False), segment_credit=SegmentCredit.divided
    ).advantages(many)
    assert divided.tolist() == [0.25] * 4 + [-0.5] * 2


def test_the_constant_advantage_is_the_same_everywhere() -> None:
    got = algorithm(advantage=ConstantAdvantageConfig(value=2.0)).advantages(batch([(0, [0, 1, 0])], rewards=[7]))
    assert got.tolist() == [2.0, 2.0, 2.0]

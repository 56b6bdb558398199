"""Advantages: GRPO, RLOO, MaxRL, OPO, pass@k, ReMax, REINFORCE++ and the constant one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from algo_cases import algorithm, batch, close, f32, facts, i32
from hypothesis import given
from hypothesis import strategies as st

from rl_agent.algo.advantage.constant import ConstantConfig
from rl_agent.algo.advantage.grpo import GrpoConfig, group_advantages
from rl_agent.algo.advantage.maxrl import by_pass_rate
from rl_agent.algo.advantage.opo import length_weighted
from rl_agent.algo.advantage.pass_at_k import pass_at_k
from rl_agent.algo.advantage.reinforce_plus_plus import ReinforcePlusPlusConfig
from rl_agent.algo.advantage.remax import RemaxConfig, against_greedy
from rl_agent.algo.advantage.rloo import leave_one_out
from rl_agent.algo.shaping.rewards import RewardsConfig
from rl_agent.config.algo import SegmentCredit
from rl_agent.errors import LawError


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
    got = algorithm(advantage=GrpoConfig(divide_by_std=False)).advantages(many)
    assert got.tolist() == [0.5] * 6 + [-0.5] * 3


def test_divided_credit_gives_each_of_k_segments_one_kth() -> None:
    many = batch([(0, [0, 1]), (0, [0, 1]), (1, [0, 1])], rewards=[1, 0])
    divided = algorithm(advantage=GrpoConfig(divide_by_std=False), segment_credit=SegmentCredit.divided).advantages(
        many
    )
    assert divided.tolist() == [0.25] * 4 + [-0.5] * 2


def test_the_constant_advantage_is_the_same_everywhere() -> None:
    got = algorithm(advantage=ConstantConfig(value=2.0)).advantages(batch([(0, [0, 1, 0])], rewards=[7]))
    assert got.tolist() == [2.0, 2.0, 2.0]


def test_grpo_by_hand() -> None:
    # 3, 1: mean 2, deviation sqrt 2; with epsilon 1: 1 / 2.4142
    assert group_advantages(f32(3, 1), i32(0, 0), divide_by_std=True, epsilon=0.0).tolist() == close(0.7071, -0.7071)
    assert group_advantages(f32(3, 1), i32(0, 0), divide_by_std=True, epsilon=1.0).tolist() == close(0.4142, -0.4142)
    # 1, 0, 0: mean 1/3, squares 6/9, deviation sqrt(1/3)
    got = group_advantages(f32(1, 0, 0), i32(0, 0, 0), divide_by_std=True, epsilon=0.0)
    assert got.tolist() == close(1.1547, -0.5774, -0.5774)
    assert group_advantages(f32(1, 0, 0), i32(0, 0, 0), divide_by_std=False, epsilon=0.0).tolist() == close(
        2 / 3, -1 / 3, -1 / 3
    )


def test_dr_grpo() -> None:
    got = group_advantages(REWARDS[:4], GROUPS[:4], divide_by_std=False, epsilon=0.0)
    assert got.tolist() == close(1.5, -1.5, -1.5, 1.5)


REWARDS = np.array([6, 3, 9, 12, 1], dtype=np.float32)
GROUPS = np.array([0, 0, 1, 1, 2], dtype=np.int32)


def test_rloo_of_pairs() -> None:
    assert leave_one_out(REWARDS, GROUPS).tolist() == close(3, -3, -3, 3, 0)


def test_rloo() -> None:
    assert leave_one_out(f32(1, 0, 0), i32(0, 0, 0)).tolist() == close(1, -0.5, -0.5)
    assert leave_one_out(f32(1, 1, 1), i32(0, 0, 0)).tolist() == close(0, 0, 0)
    assert leave_one_out(f32(4, 1, 2), i32(0, 1, 0)).tolist() == close(2, 0, -2)


def test_maxrl_of_pairs() -> None:
    got = by_pass_rate(REWARDS[:4], GROUPS[:4], epsilon=1e-6)
    assert got.tolist() == close(1.5 / 4.5, -1.5 / 4.5, -1.5 / 10.5, 1.5 / 10.5)


def test_maxrl() -> None:
    assert by_pass_rate(f32(1, 0, 0, 0), i32(0, 0, 0, 0), epsilon=0.0).tolist() == close(3, -1, -1, -1)
    assert by_pass_rate(f32(0, 0), i32(0, 0), epsilon=0.0).tolist() == close(0, 0)
    assert by_pass_rate(f32(1, 0, 1), i32(0, 0, 1), epsilon=0.0).tolist() == close(1, -1, 0)
    assert by_pass_rate(f32(-1, 0), i32(0, 0), epsilon=0.0).tolist() == close(0, 0)  # no pass rate


def test_opo() -> None:
    assert length_weighted(f32(1, 0), i32(0, 0), i32(30, 10)).tolist() == close(0.25, -0.75)
    assert length_weighted(f32(1, 0), i32(0, 0), i32(10, 10)).tolist() == close(0.5, -0.5)
    assert length_weighted(f32(1, 0, 5), i32(0, 0, 1), i32(1, 4, 9)).tolist() == close(0.8, -0.2, 0)


def test_pass_at_k() -> None:
    # n = 4, m = 2, k = 2: R = 5/6, s = 0.37268; n = 4, m = 3, k = 2: R = 1/2, failure: (1/2 - 2/3) / 0.5
    assert pass_at_k(f32(1, 1, 0, 0), i32(0, 0, 0, 0), k=2, success=1.0).tolist() == close(
        0.4472, 0.4472, -0.4472, -0.4472
    )
    assert pass_at_k(f32(1, 0, 0, 0), i32(0, 0, 0, 0), k=2, success=1.0).tolist() == close(1, -1 / 3, -1 / 3, -1 / 3)
    # k = 1: (r - 1/2) / 1/2; too few failures, no success, a group smaller than k: nothing
    assert pass_at_k(f32(1, 0), i32(0, 0), k=1, success=1.0).tolist() == close(1, -1)
    assert pass_at_k(f32(1, 1, 0), i32(0, 0, 0), k=2, success=1.0).tolist() == close(0, 0, 0)
    assert pass_at_k(f32(0, 0), i32(0, 0), k=2, success=1.0).tolist() == close(0, 0)
    assert pass_at_k(f32(1, 0), i32(0, 0), k=4, success=1.0).tolist() == close(0, 0)


def test_remax() -> None:
    greedy = np.array([False, False, True])
    assert against_greedy(f32(1, 0, 1), i32(0, 0, 0), greedy).tolist() == close(0, -1, 0)
    assert against_greedy(f32(1, 0, 0), i32(0, 0, 0), greedy).tolist() == close(1, 0, 0)
    assert against_greedy(f32(1, 0, 0), i32(0, 0, 1), greedy).tolist() == close(0, 0, 0)  # its greedy one is missing
    with pytest.raises(LawError, match="greedy"):
        algorithm(advantage=RemaxConfig()).advantages(batch([(0, [0, 1])], rewards=[1]))


def test_remax_without_the_greedy_baseline_of_a_group() -> None:
    four = batch([(i, [0, 1]) for i in range(4)], rewards=[1, 0, 1, 0], groups=[0, 0, 1, 1])
    greedy, cut = np.array([False, True, False, True]), np.array([False, True, False, False])
    told = dataclasses.replace(four, facts=facts(4, greedy=greedy, truncated=cut))
    remax = RemaxConfig(whiten=False)
    assert algorithm(advantage=remax).advantages(told).tolist() == [1, 1, 0, 0, 1, 1, 0, 0]
    bundle = algorithm(advantage=remax, shaping=RewardsConfig(drop_truncated=True))
    left = bundle.shaped(told).batch
    assert left.rollout_group.tolist() == [0, 1, 1]
    assert bundle.advantages(left).tolist() == [0, 0, 1, 1, 0, 0]


def test_reinforce_plus_plus() -> None:
    two = batch([(0, [0, 1, 0, 1]), (1, [0, 1])], rewards=[1, 0])
    plain = algorithm(advantage=ReinforcePlusPlusConfig(gamma=0.5, whiten=False))
    assert plain.advantages(two).tolist() == close(0, 0.5, 0, 1, 0, 0)  # context is no time
    # returns 1, 1, 0: mean 2/3, deviation 0.57735
    white = algorithm(advantage=ReinforcePlusPlusConfig())
    assert white.advantages(two).tolist() == close(0, 0.5774, 0, 0.5774, 0, -1.1547)
    # with the group's mean off first, 0.5, 0.5, -0.5: the same after whitening
    based = algorithm(advantage=ReinforcePlusPlusConfig(baseline=True))
    assert based.advantages(two).tolist() == close(0, 0.5774, 0, 0.5774, 0, -1.1547)
    # a rollout's later segment comes later: 1 at the end of the second
    cut = batch([(0, [0, 1]), (0, [0, 1])], rewards=[1])
    assert plain.advantages(cut).tolist() == close(0, 0.5, 0, 1)


def test_the_order_of_the_rollouts_changes_no_return() -> None:
    bundle = algorithm(advantage=ReinforcePlusPlusConfig(gamma=0.5, whiten=False))
    first = bundle.advantages(batch([(0, [0, 1, 1]), (1, [0, 1]), (1, [0, 1])], rewards=[1, 8]))
    assert first.tolist() == [0, 0.5, 1, 0, 4, 0, 8]
    second = bundle.advantages(batch([(1, [0, 1]), (0, [0, 1, 1]), (1, [0, 1])], rewards=[1, 8]))
    assert second.tolist() == [0, 4, 0, 0.5, 1, 0, 8]


def test_whitening_is_an_option_of_every_estimator() -> None:
    # 0.5, 0.5, 0.5, -0.5 over trained tokens: mean 0.25, deviation 0.5
    uneven = batch([(0, [0, 1, 1, 1]), (1, [0, 1])], rewards=[1, 0])
    white = algorithm(advantage=GrpoConfig(divide_by_std=False, whiten=True)).advantages(uneven)
    assert white.tolist() == close(0.5, 0.5, 0.5, 0.5, -1.5, -1.5)

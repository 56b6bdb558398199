"""Group statistics, whitening, trajectories and discounted sums."""

from __future__ import annotations

import dataclasses

import numpy as np
from algo_cases import batch, close, f32, i32
from hypothesis import given
from hypothesis import strategies as st

from rl_agent.algo.credit import discounted_sums, following, to_tokens, trajectories, whitened
from rl_agent.algo.groups import group_means, has_variance


def test_whitening_by_hand() -> None:
    # 1, 3 (mean 2, deviation sqrt 2); 9 is not counted but whitened: (9 - 2) / sqrt 2
    assert whitened(f32(1, 9, 3), np.array([True, False, True])).tolist() == close(-0.7071, 4.9497, 0.7071)
    assert whitened(f32(5, 5, 1), np.array([True, True, False])).tolist() == [0, 0, 0]  # equal values give 0
    assert whitened(f32(5, 6), np.array([True, False])).tolist() == [0, 0]  # so does a single value
    # 0, 0, 3: mean 1, squares 1 + 1 + 4, deviation sqrt 3
    assert whitened(np.array([0.0, 0.0, 3.0])).tolist() == close(-0.5774, -0.5774, 1.1547)
    assert whitened(np.array([2.0, 2.0])).tolist() == [0, 0]
    assert whitened(np.array([2.0])).tolist() == [0]


def test_group_statistics() -> None:
    values, groups = f32(1, 3, 5, 7), i32(4, 4, 4, 9)
    assert group_means(values, groups).tolist() == [3, 3, 3, 7]
    assert group_means(values, groups, i32(2, 0, 2, 1)).tolist() == [3, 3, 3, 7]  # (2 * 1 + 2 * 5) / 4
    assert group_means(values, groups, i32(0, 0, 0, 1)).tolist() == [1, 3, 5, 7]  # no weight: its own value
    assert has_variance(values, groups).tolist() == [True, True, True, False]
    assert has_variance(f32(1, 1, 2, 2), i32(0, 0, 1, 1)).tolist() == [False] * 4
    assert has_variance(f32(1, 1, 2, 1), i32(0, 0, 1, 1)).tolist() == [False, False, True, True]


def test_every_token_gets_the_value_of_its_rollout() -> None:
    two = batch([(0, [0, 1]), (1, [0, 1, 1]), (0, [0])], rewards=[0, 0])
    assert to_tokens(two, f32(5, 7), whiten=False).tolist() == [5, 5, 7, 7, 7, 5]
    # trained: 5, 7, 7: mean 19/3, deviation sqrt(4/3)
    assert to_tokens(two, f32(5, 7), whiten=True).tolist() == close(-1.1547, -1.1547, *[0.5774] * 3, -1.1547)
    assert to_tokens(two, f32(5, 5), whiten=True).tolist() == [0] * 6


def test_discounted_sums() -> None:
    # two trajectories 1, 2 | 4, 8, 16 and an empty one: 1 + 2 d | 4 + 8 d + 16 d^2, 8 + 16 d, 16
    values, lengths = np.array([1, 2, 4, 8, 16]), np.array([2, 0, 3])
    assert discounted_sums(values, lengths, 1.0).tolist() == [3, 2, 28, 24, 16]
    assert discounted_sums(values, lengths, 0.5).tolist() == [2, 2, 12, 16, 16]
    assert discounted_sums(values, lengths, 0.0).tolist() == [1, 2, 4, 8, 16]
    assert discounted_sums(values[:0], lengths[:0], 0.5).tolist() == []


def test_discounted_returns() -> None:
    assert discounted_sums(np.array([1, 2, 3]), np.array([3]), 0.5).tolist() == close(2.75, 3.5, 3)
    # a masked token is no part of the trajectory
    assert discounted_sums(np.array([1, 2]), np.array([2]), 1.0).tolist() == close(3, 2)


def test_discounted_sums_of_empty_and_long_trajectories() -> None:
    random = np.random.default_rng(0)
    lengths = np.array([0, 1, 200, 7, 64, 0, 65])
    values = random.normal(size=int(lengths.sum()))
    for discount in (1.0, 0.95, 0.0):
        expected, begin = np.zeros(len(values)), 0
        for length in lengths:
            running = 0.0
            for t in reversed(range(begin, begin + length)):
                running = values[t] + discount * running
                expected[t] = running
            begin += length
        np.testing.assert_allclose(discounted_sums(values, lengths, discount), expected, atol=1e-10)


@given(
    lengths=st.lists(st.integers(0, 70), max_size=12),
    discount=st.sampled_from([0.0, 0.3, 0.95, 0.999, 1.0]),
    seed=st.integers(0, 999),
)
def test_discounted_sums_equal_a_loop_over_tokens(lengths: list[int], discount: float, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=sum(lengths))
    expected: list[float] = []
    begin = 0
    for length in lengths:
        running, own = 0.0, []
        for value in values[begin : begin + length][::-1].tolist():
            running = value + discount * running
            own.append(running)
        expected += own[::-1]
        begin += length
    got = discounted_sums(values, np.array(lengths, dtype=np.int32), discount)
    np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-11)


def test_the_next_value_of_a_trajectory() -> None:
    assert following(np.array([1.0, 2.0, 3.0]), np.array([3])).tolist() == [2, 3, 0]
    assert following(np.array([1.0, 2.0, 3.0]), np.array([1, 0, 2])).tolist() == [0, 3, 0]
    assert following(np.array([]), np.array([0, 0])).tolist() == []


def test_trajectories_are_the_trained_tokens_of_each_rollout() -> None:
    one = batch([(0, [0, 1, 0, 1]), (1, [0, 1]), (2, [0, 0])], rewards=[3, 5, 7])
    own = trajectories(one)
    assert own.lengths.tolist() == [2, 1, 0]
    assert np.arange(8)[own.places].tolist() == [1, 3, 5]
    assert own.rewards.tolist() == [0, 3, 5]  # with the last trained token; a rollout without one earns nothing
    assert own.spread(np.array([1.0, 2.0, 4.0]), 8).tolist() == [0, 1, 0, 2, 0, 4, 0, 0]
    # rollouts that do not stand one after the other
    mixed = trajectories(batch([(1, [0, 1]), (0, [0, 1, 1]), (1, [0, 1])], rewards=[3, 5]))
    assert mixed.lengths.tolist() == [2, 2]
    assert np.arange(7)[mixed.places].tolist() == [3, 4, 1, 6]
    # what single tokens earn comes on top
    paid = dataclasses.replace(one, token_rewards=f32(9, 1, 9, 2, 9, 4, 9, 9))
    assert trajectories(paid).rewards.tolist() == [1, 2 + 3, 4 + 5]

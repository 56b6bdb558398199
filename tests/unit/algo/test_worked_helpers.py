"""At least three cases worked by hand for what the formulas are made of: ratios, sums over sequences, statistics, trajectories."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from algo_cases import algorithm, batch, loss_input
from hypothesis import given
from hypothesis import strategies as st

from rl_agent.algo.advantage.discount import discounted_sums
from rl_agent.algo.advantage.gae import following, generalised_advantages
from rl_agent.algo.advantage.groups import group_means, says_nothing
from rl_agent.algo.advantage.grpo import group_advantages
from rl_agent.algo.advantage.spread import standardised, to_tokens, whitened
from rl_agent.algo.advantage.trajectory import trajectories
from rl_agent.algo.base import CorrectionInput, LossTerms
from rl_agent.algo.correction.decoupled import Decoupled
from rl_agent.algo.correction.icepop import IcePop
from rl_agent.algo.correction.levels import at_level
from rl_agent.algo.correction.masked import Masked
from rl_agent.algo.correction.none import NoCorrection
from rl_agent.algo.correction.proximal import approximated
from rl_agent.algo.kl.adaptive import adapted
from rl_agent.algo.kl.none import NoKl
from rl_agent.algo.loss.covariance import shuffled_rank
from rl_agent.algo.metrics import means, token_sums
from rl_agent.algo.ratio import floored, log_ratio, sequence_max, sequence_mean, sequence_sum
from rl_agent.algo.shaping.overlong import overlong_penalty
from rl_agent.config.algo import ReinforcePlusPlusAdvantageConfig
from rl_agent.config.algo_parts import Proximal, WeightLevel

VALUES = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0])
MASK = torch.tensor([True, False, True, True, False])


def f32(*values: float) -> Any:
    return np.array(values, dtype=np.float32)


def i32(*values: int) -> Any:
    return np.array(values, dtype=np.int32)


def close(*expected: float) -> Any:
    return pytest.approx(list(expected), abs=1e-4)


def test_the_log_ratio_is_bounded() -> None:
    got = log_ratio(torch.tensor([-1.0, -1.0, -math.inf, -0.5]), torch.tensor([-1.5, -99.0, -1.0, -0.5]))
    assert got.tolist() == [0.5, 20, -20, 0]


def test_the_floor_of_a_log_probability() -> None:
    assert floored(torch.tensor([-1.0, -2.0e4, -math.inf])).tolist() == [-1, -1e4, -1e4]


def test_sums_and_means_and_the_largest_of_a_sequence() -> None:
    # sequences [1, (2), 4] and [8, (16)]: sums 5 and 8, means 2.5 and 8, largest 4 and 8
    sequence = torch.tensor([0, 0, 0, 1, 1])
    assert sequence_sum(VALUES, MASK, sequence).tolist() == [5, 5, 5, 8, 8]
    assert sequence_mean(VALUES, MASK, sequence).tolist() == [2.5, 2.5, 2.5, 8, 8]
    assert sequence_max(VALUES, MASK, sequence).tolist() == [4, 4, 4, 8, 8]
    # a sequence that is cut in two pieces, 1 and 8 of number 0, is one all the same
    cut = torch.tensor([0, 1, 1, 0, 2])
    assert sequence_sum(VALUES, MASK, cut).tolist() == [9, 4, 4, 9, 0]
    assert sequence_mean(VALUES, MASK, cut).tolist() == [4.5, 4, 4, 4.5, 0]
    assert sequence_max(VALUES, MASK, cut).tolist() == [8, 4, 4, 8, 0]
    # nothing masked, nothing there
    nothing = torch.zeros(5, dtype=torch.bool)
    for gather in (sequence_sum, sequence_mean, sequence_max):
        assert gather(VALUES, nothing, sequence).tolist() == [0] * 5
        assert gather(VALUES[:0], nothing[:0], sequence[:0]).tolist() == []


def test_whitening() -> None:
    # 1, 3 (mean 2, deviation sqrt 2); 9 is not counted but whitened: (9 - 2) / sqrt 2
    assert whitened(f32(1, 9, 3), np.array([True, False, True])).tolist() == close(-0.7071, 4.9497, 0.7071)
    assert whitened(f32(5, 5, 1), np.array([True, True, False])).tolist() == [0, 0, 0]  # equal ones say nothing
    assert whitened(f32(5, 6), np.array([True, False])).tolist() == [0, 0]  # nor does one
    # 0, 0, 3: mean 1, squares 1 + 1 + 4, deviation sqrt 3
    assert standardised(np.array([0.0, 0.0, 3.0])).tolist() == close(-0.5774, -0.5774, 1.1547)
    assert standardised(np.array([2.0, 2.0])).tolist() == [0, 0]
    assert standardised(np.array([2.0])).tolist() == [0]


def test_group_statistics() -> None:
    values, groups = f32(1, 3, 5, 7), i32(4, 4, 4, 9)
    assert group_means(values, groups).tolist() == [3, 3, 3, 7]
    assert group_means(values, groups, i32(2, 0, 2, 1)).tolist() == [3, 3, 3, 7]  # (2 * 1 + 2 * 5) / 4
    assert group_means(values, groups, i32(0, 0, 0, 1)).tolist() == [1, 3, 5, 7]  # nobody counts: its own
    assert says_nothing(values, groups).tolist() == [False, False, False, True]
    assert says_nothing(f32(1, 1, 2, 2), i32(0, 0, 1, 1)).tolist() == [True] * 4
    assert says_nothing(f32(1, 1, 2, 1), i32(0, 0, 1, 1)).tolist() == [True, True, False, False]


def test_grpos_advantages() -> None:
    # 3, 1: mean 2, deviation sqrt 2; with epsilon 1: 1 / 2.4142
    assert group_advantages(f32(3, 1), i32(0, 0), divide_by_std=True, epsilon=0.0).tolist() == close(0.7071, -0.7071)
    assert group_advantages(f32(3, 1), i32(0, 0), divide_by_std=True, epsilon=1.0).tolist() == close(0.4142, -0.4142)
    # 1, 0, 0: mean 1/3, squares 6/9, deviation sqrt(1/3)
    got = group_advantages(f32(1, 0, 0), i32(0, 0, 0), divide_by_std=True, epsilon=0.0)
    assert got.tolist() == close(1.1547, -0.5774, -0.5774)
    assert group_advantages(f32(1, 0, 0), i32(0, 0, 0), divide_by_std=False, epsilon=0.0).tolist() == close(
        2 / 3, -1 / 3, -1 / 3
    )


def test_every_token_gets_its_rollouts_number() -> None:
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


@given(
    lengths=st.lists(st.integers(0, 70), max_size=12),
    discount=st.sampled_from([0.0, 0.3, 0.95, 0.999, 1.0]),
    block=st.sampled_from([2, 3, 16]),
    seed=st.integers(0, 999),
)
def test_the_sum_by_blocks_is_the_sum_one_by_one(lengths: list[int], discount: float, block: int, seed: int) -> None:
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
    got = discounted_sums(values, np.array(lengths, dtype=np.int32), discount, block)
    np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-11)


def test_what_follows_in_a_trajectory() -> None:
    assert following(np.array([1.0, 2.0, 3.0]), np.array([3]), 0.5).tolist() == [1, 1.5, 0]
    assert following(np.array([1.0, 2.0, 3.0]), np.array([1, 0, 2]), 1.0).tolist() == [0, 3, 0]
    assert following(np.array([]), np.array([0, 0]), 1.0).tolist() == []


def test_generalised_advantages() -> None:
    rewards, values, two = np.array([0, 1, 2]), np.array([0.5, 0.25, 1.0]), np.array([2, 1])
    # deltas with gamma = 1: 0.25 - 0.5, 1 - 0.25 | 2 - 1
    assert generalised_advantages(rewards, values, two, gamma=1.0, lam=0.0).tolist() == close(-0.25, 0.75, 1)
    assert generalised_advantages(rewards, values, two, gamma=1.0, lam=1.0).tolist() == close(0.5, 0.75, 1)
    assert generalised_advantages(rewards, values, two, gamma=1.0, lam=0.5).tolist() == close(0.125, 0.75, 1)
    # gamma = 0.5: 0.125 - 0.5 + 0.25 * 0.75
    assert generalised_advantages(rewards, values, two, gamma=0.5, lam=0.5).tolist() == close(-0.1875, 0.75, 1)


@given(seed=st.integers(0, 999), gamma=st.sampled_from([1.0, 0.9]), lam=st.sampled_from([0.0, 0.5, 0.95, 1.0]))
def test_the_lambda_return_minus_the_value_is_the_sum_of_deltas(seed: int, gamma: float, lam: float) -> None:
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 40, 5)
    rewards, values = random.normal(size=lengths.sum()), random.normal(size=lengths.sum())
    deltas = rewards + following(values, lengths, gamma) - values
    got = generalised_advantages(rewards, values, lengths, gamma=gamma, lam=lam)
    np.testing.assert_allclose(got, discounted_sums(deltas, lengths, gamma * lam), rtol=1e-10, atol=1e-10)


def test_trajectories_are_the_trained_tokens_of_each_rollout() -> None:
    one = batch([(0, [0, 1, 0, 1]), (1, [0, 1]), (2, [0, 0])], rewards=[3, 5, 7])
    own = trajectories(one)
    assert own.lengths.tolist() == [2, 1, 0]
    assert np.arange(8)[own.places].tolist() == [1, 3, 5]
    assert own.earned().tolist() == [0, 3, 5]  # with the last trained token; a rollout without one earns nothing
    assert own.spread(np.array([1.0, 2.0, 4.0]), 8).tolist() == [0, 1, 0, 2, 0, 4, 0, 0]
    # rollouts that do not stand one after the other
    mixed = trajectories(batch([(1, [0, 1]), (0, [0, 1, 1]), (1, [0, 1])], rewards=[3, 5]))
    assert mixed.lengths.tolist() == [2, 2]
    assert np.arange(7)[mixed.places].tolist() == [3, 4, 1, 6]
    # what single tokens earn comes on top
    paid = dataclasses.replace(one, token_rewards=f32(9, 1, 9, 2, 9, 4, 9, 9))
    assert trajectories(paid).earned().tolist() == [1, 2 + 3, 4 + 5]


def test_the_order_of_the_rollouts_changes_no_return() -> None:
    bundle = algorithm(advantage=ReinforcePlusPlusAdvantageConfig(gamma=0.5, whiten=False))
    first = bundle.advantages(batch([(0, [0, 1, 1]), (1, [0, 1]), (1, [0, 1])], rewards=[1, 8]))
    assert first.tolist() == [0, 0.5, 1, 0, 4, 0, 8]
    second = bundle.advantages(batch([(1, [0, 1]), (0, [0, 1, 1]), (1, [0, 1])], rewards=[1, 8]))
    assert second.tolist() == [0, 4, 0, 0.5, 1, 0, 8]


def corrected(*log_weights: float) -> CorrectionInput:
    """Sequences of two tokens."""
    count = len(log_weights)
    return CorrectionInput(
        log_weights=torch.tensor(log_weights),
        loss_mask=torch.ones(count, dtype=torch.bool),
        sequence=torch.arange(count) // 2,
    )


def test_the_level_of_an_importance_weight() -> None:
    inputs = corrected(1.0, 2.0, -1.0, 0.0)
    assert at_level(inputs, WeightLevel.token).tolist() == [1, 2, -1, 0]
    assert at_level(inputs, WeightLevel.sequence).tolist() == [3, 3, -1, -1]
    assert at_level(inputs, WeightLevel.geometric).tolist() == [1.5, 1.5, -0.5, -0.5]
    assert at_level(corrected(15.0, 15.0), WeightLevel.sequence).tolist() == [20, 20]


def test_corrections() -> None:
    half, one, two = math.log(0.5), 0.0, math.log(2.0)
    none = NoCorrection(proximal=Proximal.recomputed)(corrected(half, two, one))
    assert none.weights.tolist() == [1, 1, 1]
    assert not none.corrected.any()
    pop = IcePop(proximal=Proximal.recomputed, low=0.6, high=1.8)(corrected(half, two, one))
    assert pop.weights.tolist() == close(0, 0, 1)
    capped = Decoupled(proximal=Proximal.recomputed, cap=1.5)(corrected(half, two, one))
    assert capped.weights.tolist() == close(0.5, 0, 1)
    # by the product: 0.5 * 2 = 1 is kept whole, 2 * 2 = 4 is not, 0.5 * 0.5 = 0.25 is not
    masked = Masked(proximal=Proximal.recomputed, level=WeightLevel.sequence, low=0.5, high=2.0, weighted=True)
    assert masked(corrected(half, two, two, two, half, half)).weights.tolist() == close(0.5, 2, 0, 0, 0, 0)
    plain = dataclasses.replace(masked, weighted=False)
    assert plain(corrected(half, two, two, two)).weights.tolist() == [1, 1, 0, 0]


def test_the_approximated_proximal_policy() -> None:
    # between -3 and -1: lag 0: -3; lag 1: half way; lag 3: three quarters; without a version: as if fresh
    got = approximated(torch.full((4,), -1.0), torch.full((4,), -3.0), i32_tensor(0, 1, 3, -1))
    assert got.tolist() == close(-3, -2, -1.5, -3)


def i32_tensor(*values: int) -> Any:
    return torch.tensor(values, dtype=torch.int32)


def test_the_adaptive_coefficient() -> None:
    # error 0.1: 1 * (1 + 0.1 * 20 / 100); beyond 0.2 it is bounded, either way; at the target it stays
    assert adapted(1.0, 1.1, target=1.0, horizon=100, rollouts=20) == pytest.approx(1.02)
    assert adapted(1.0, 9.0, target=1.0, horizon=100, rollouts=50) == pytest.approx(1.1)
    assert adapted(0.5, 0.0, target=1.0, horizon=100, rollouts=50) == pytest.approx(0.45)
    assert adapted(0.5, 1.0, target=1.0, horizon=100, rollouts=50) == pytest.approx(0.5)


def test_no_penalty() -> None:
    part = NoKl()
    assert part(torch.tensor([-1.0, -2.0]), torch.tensor([0.0, 0.0]), None).tolist() == [0, 0]
    assert part.next_coefficient(0.3, 9.0, 10) == 0.3
    assert part.coefficient == 0.0


def test_the_overlong_penalty() -> None:
    # limit 8, buffer 4: from 4 on; 6: half; 8: all; 10: one and a half; twice as much with factor 2
    got = overlong_penalty(i32(2, 4, 6, 8, 10), limit=8, buffer=4, factor=1.0)
    assert got.tolist() == [0, 0, -0.5, -1, -1.5]
    assert overlong_penalty(i32(6), limit=8, buffer=4, factor=2.0).tolist() == [-1]
    assert overlong_penalty(i32(6), limit=8, buffer=2, factor=1.0).tolist() == [0]


def test_a_shuffled_rank_follows_from_the_value_alone() -> None:
    # splitmix64's finaliser: of 0 it is 0; equal values have equal ranks wherever they stand; neighbours are far apart
    rank = shuffled_rank(np.array([0.0, 1.0, 2.0, 1.0]))
    assert rank[0] == 0
    assert rank[1] == rank[3]
    assert len(set(rank.tolist())) == 3
    bits = np.float64(1.0).view(np.uint64).item()  # 0x3ff0000000000000
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> shift)) * factor % 2**64
    assert int(rank[1]) == bits ^ (bits >> 31)


def test_metrics_of_a_pass() -> None:
    # three tokens, the last not trained; ratios to the sampler 2 and 0.5: k1 = -mean(ln 2, -ln 2) = 0,
    # k3 = mean(2 - 1 - 0.6931, 0.5 - 1 + 0.6931) = 0.25; weights 2 and 0.5: (2.5)^2 / (2 * 4.25) = 0.7353
    log = math.log(2.0)
    inputs = dataclasses.replace(
        loss_input([-1.0, -2.0, -3.0], [-1.0 - log, -2.0 + log, -9.0], [1.0, 1.0, 1.0]),
        loss_mask=torch.tensor([True, True, False]),
        staleness=i32_tensor(0, 2, -1),
    )
    terms = LossTerms(loss=torch.zeros(3), metrics={"clip_fraction": torch.tensor([True, False, True])})
    got = means(
        {name: float(value) for name, value in token_sums(inputs, terms, torch.tensor([1.0, 3.0, 9.0])).items()}
    )
    assert got["entropy"] == pytest.approx(2)
    assert got["clip_fraction"] == pytest.approx(0.5)
    assert got["kl_k1"] == pytest.approx(0, abs=1e-6)
    assert got["kl_k3"] == pytest.approx(0.25, abs=1e-6)
    assert got["effective_sample_size"] == pytest.approx(6.25 / 8.5)
    assert got["staleness_0/share"] == got["staleness_2_3/share"] == pytest.approx(0.5)
    assert got["staleness_0/clip_fraction"] == 1
    assert got["staleness_0/kl_k1"] == pytest.approx(-log)
    assert got["staleness_2_3/kl_k1"] == pytest.approx(log)
    assert (got["staleness_0/entropy"], got["staleness_2_3/entropy"]) == (1, 3)
    assert got["staleness_0/effective_sample_size"] == pytest.approx(1)  # one token is one sample, whatever its weight
    assert got["staleness_2_3/clip_fraction"] == 0
    assert "staleness_1/share" not in got
    # no token at all: no mean
    nothing = token_sums(dataclasses.replace(inputs, loss_mask=torch.zeros(3, dtype=torch.bool)), terms, torch.zeros(3))
    assert means({name: float(value) for name, value in nothing.items()}) == {}

"""Ratios that stay finite, and sums over sequences."""

from __future__ import annotations

import math

import torch

from rl_agent.algo.ratio import floored, log_ratio, sequence_max, sequence_mean, sequence_sum

VALUES = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0])
MASK = torch.tensor([True, False, True, True, False])


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

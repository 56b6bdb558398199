"""Penalties on rewards, and filters on rollouts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from algo_cases import algorithm, batch, close, f32, facts, i32

from rl_agent.algo.groups import has_variance
from rl_agent.algo.shaping.rewards import RewardsConfig, length_rewards, overlong_penalty, share_penalty
from rl_agent.errors import LawError


def test_shaping_formulas() -> None:
    assert share_penalty(i32(1, 0, 3), i32(4, 0, 2), 0.2).tolist() == close(-0.05, 0, -0.2)
    solved = np.array([True, True, False, True])
    assert length_rewards(i32(10, 20, 30, 5), i32(0, 0, 0, 1), solved).tolist() == close(0.5, 0, -0.5, 0)
    assert length_rewards(i32(10, 30), i32(0, 0), np.array([False, True])).tolist() == close(0, -0.5)
    assert length_rewards(i32(10, 10), i32(0, 0), np.array([True, True])).tolist() == close(0, 0)
    assert has_variance(f32(1, 1, 1, 0, 0), i32(0, 0, 1, 1, 2)).tolist() == [False, False, True, True, False]


def test_the_overlong_penalty_of_a_limit_of_100() -> None:
    got = overlong_penalty(np.array([70, 80, 90, 100, 110], dtype=np.int32), limit=100, buffer=20, factor=1.0)
    assert got.tolist() == close(0, 0, -0.5, -1, -1.5)


def test_the_overlong_penalty() -> None:
    # limit 8, buffer 4: from 4 on; 6: half; 8: all; 10: one and a half; twice as much with factor 2
    got = overlong_penalty(i32(2, 4, 6, 8, 10), limit=8, buffer=4, factor=1.0)
    assert got.tolist() == [0, 0, -0.5, -1, -1.5]
    assert overlong_penalty(i32(6), limit=8, buffer=4, factor=2.0).tolist() == [-1]
    assert overlong_penalty(i32(6), limit=8, buffer=2, factor=1.0).tolist() == [0]


def test_shaping_adds_to_rewards_and_leaves_rollouts_out() -> None:
    four = batch([(i, [0, 1, 1]) for i in range(4)], rewards=[1, 0, 1, 1], groups=[0, 0, 1, 1])
    told = dataclasses.replace(
        four,
        facts=facts(
            4,
            truncated=np.array([False, True, False, False]),
            turns=i32(2, 2, 2, 2),
            ill_formed=i32(1, 0, 0, 0),
            tool_calls=i32(4, 4, 0, 4),
            tool_errors=i32(1, 0, 0, 4),
        ),
    )
    penalised = algorithm(shaping=RewardsConfig(format_penalty=0.2, tool_error_penalty=0.4)).shaped(told)
    assert penalised.batch.rewards.tolist() == close(1 - 0.1 - 0.1, 0, 1, 0.6)
    assert penalised.metrics["shaping/format"] == pytest.approx(-0.025)
    overlong = algorithm(shaping=RewardsConfig(overlong_penalty=1.0, overlong_limit=4, overlong_buffer=0.5))
    assert overlong.shaped(told).batch.rewards.tolist() == close(0.5, -0.5, 0.5, 0.5)  # segments of 3 of 4, buffer 2
    # by what was graded, group 1 is equal, whatever was added
    filtered = algorithm(shaping=RewardsConfig(tool_error_penalty=0.4, drop_zero_variance=True)).shaped(told)
    assert filtered.batch.rewards.tolist() == close(0.9, 0)
    assert filtered.metrics["shaping/dropped_zero_variance"] == 2
    cut = algorithm(shaping=RewardsConfig(drop_truncated=True)).shaped(told)
    assert cut.batch.rewards.tolist() == [1, 1, 1]
    assert cut.batch.tokens.shape == (9,)
    assert algorithm().shaped(told).batch is told
    with pytest.raises(LawError, match="drop_truncated"):
        algorithm(shaping=RewardsConfig(drop_truncated=True)).shaped(four)

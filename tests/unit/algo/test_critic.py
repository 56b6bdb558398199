"""Generalized advantage estimation and the loss of the critic."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from algo_cases import algorithm, batch, close, f32
from hypothesis import given
from hypothesis import strategies as st

from rl_agent.algo.advantage.gae import GaeConfig, generalized_advantages, value_loss
from rl_agent.algo.credit import discounted_sums, following, whitened
from rl_agent.algo.scores import Scores
from rl_agent.errors import LawError


@pytest.mark.parametrize(
    ("gamma", "lam", "returns"), [(1, 1, [6, 5, 3]), (0.5, 1, [2.75, 3.5, 3]), (1, 0.5, [3.625, 4.25, 3])]
)
def test_gae(gamma: float, lam: float, returns: list[float]) -> None:
    values = np.array([0.5, 1, 1.5])
    got = generalized_advantages(np.array([1, 2, 3]), values, np.array([3]), gamma=gamma, lam=lam)
    assert (got + values).tolist() == close(*returns)
    if (gamma, lam) == (1, 1):
        white = whitened(got.astype(np.float32), np.array([True, False, True]))
        assert white.tolist() == close(0.7071, 0.1768, -0.7071)


def test_generalized_advantages() -> None:
    rewards, values, two = np.array([0, 1, 2]), np.array([0.5, 0.25, 1.0]), np.array([2, 1])
    # deltas with gamma = 1: 0.25 - 0.5, 1 - 0.25 | 2 - 1
    assert generalized_advantages(rewards, values, two, gamma=1.0, lam=0.0).tolist() == close(-0.25, 0.75, 1)
    assert generalized_advantages(rewards, values, two, gamma=1.0, lam=1.0).tolist() == close(0.5, 0.75, 1)
    assert generalized_advantages(rewards, values, two, gamma=1.0, lam=0.5).tolist() == close(0.125, 0.75, 1)
    # gamma = 0.5: 0.125 - 0.5 + 0.25 * 0.75
    assert generalized_advantages(rewards, values, two, gamma=0.5, lam=0.5).tolist() == close(-0.1875, 0.75, 1)


@given(seed=st.integers(0, 999), gamma=st.sampled_from([1.0, 0.9]), lam=st.sampled_from([0.0, 0.5, 0.95, 1.0]))
def test_the_sum_of_deltas_is_the_lambda_return_minus_the_value(seed: int, gamma: float, lam: float) -> None:
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 40, 5)
    rewards, values = random.normal(size=lengths.sum()), random.normal(size=lengths.sum())
    # G_t = r_t + gamma * (1 - lambda) * V_{t+1} + gamma * lambda * G_{t+1}
    returns = discounted_sums(rewards + gamma * (1 - lam) * following(values, lengths), lengths, gamma * lam)
    got = generalized_advantages(rewards, values, lengths, gamma=gamma, lam=lam)
    np.testing.assert_allclose(got, returns - values, rtol=1e-10, atol=1e-10)


def test_gae_over_the_policys_own_tokens() -> None:
    one = batch([(0, [0, 1, 0, 1]), (1, [0, 1])], rewards=[1, 0])
    scored = dataclasses.replace(one, scores=Scores(values=f32(9, 0.5, 9, 0.25, 9, 0.5)))
    bundle = algorithm(advantage=GaeConfig(lam=1.0, whiten=False))
    assert bundle.advantages(scored).tolist() == close(0, 0.5, 0, 0.75, 0, -0.5)
    assert bundle.critic is not None
    assert bundle.critic.with_targets(scored)[1][one.loss_mask].tolist() == close(1, 1, 0)
    # lambda 0: 0 + 0.25 - 0.5; 1 - 0.25; 0 - 0.5
    short = algorithm(advantage=GaeConfig(lam=0.0, whiten=False))
    assert short.advantages(scored).tolist() == close(0, -0.25, 0, 0.75, 0, -0.5)
    with pytest.raises(LawError, match="values"):
        bundle.advantages(one)


def test_value_loss() -> None:
    # (V - R)^2 / 2: (1 - 2)^2 / 2; (0 - 0)^2 / 2; (3 - 1)^2 / 2
    values, targets = torch.tensor([1.0, 0.0, 3.0]), torch.tensor([2.0, 0.0, 1.0])
    assert value_loss(values, values, targets, None).tolist() == close(0.5, 0, 2)
    # clipped to V_old +- 0.5: V_old = 0: 0.5, so (0.5 - 2)^2 / 2 is the larger; V_old = 0: inside; V_old = 3.2: inside
    old = torch.tensor([0.0, 0.0, 3.2])
    assert value_loss(values, old, targets, 0.5).tolist() == close(1.125, 0, 2)
    # V_old = 1, V = 3, R = 3: free 0, clipped to 1.5: 1.125
    assert value_loss(torch.tensor([3.0]), torch.tensor([1.0]), torch.tensor([3.0]), 0.5).tolist() == close(1.125)


def test_the_critics_loss_is_half_the_larger_squared_error() -> None:
    # free: 0.5 * 1; clipped to 0.7: 0.5 * 1.3^2; within the clip: the same; without a clip: 0.5
    values = torch.tensor([1.0, 1.0, 0.6, 3.0], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([1.0, 0.5, 0.5, 0.5], dtype=torch.float64)
    goal = torch.tensor([2.0, 2.0, 2.0, 2.0], dtype=torch.float64)
    loss = value_loss(values, old, goal, 0.2)
    loss.sum().backward()
    assert loss.tolist() == pytest.approx([0.5, 0.845, 0.98, 0.845])
    assert values.grad is not None
    assert values.grad.tolist() == pytest.approx([-1, 0, -1.4, 0])
    assert value_loss(values, old, goal, None).tolist() == pytest.approx([0.5, 0.5, 0.98, 0.5])

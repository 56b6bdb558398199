"""Estimates of a divergence, the penalty, and its adaptive coefficient."""

from __future__ import annotations

import dataclasses
from typing import Any

import naive
import numpy as np
import pytest
import torch
from algo_cases import CURRENT, OLD, SAMPLER, algorithm, batch, close, f32, loss_input
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agent.algo.advantage.grpo import GrpoConfig
from rl_agent.algo.advantage.reinforce_plus_plus import ReinforcePlusPlusConfig
from rl_agent.algo.divergence import KlEstimator, estimate
from rl_agent.algo.kl.none import NoKlConfig
from rl_agent.algo.kl.penalty import Penalty, PenaltyConfig, adapted
from rl_agent.algo.loss.reinforce import ReinforceConfig
from rl_agent.algo.scores import Scores
from rl_agent.config.algo import KlPlace, Need


def penalty(**fields: Any) -> Penalty:
    return PenaltyConfig(**({"coefficient": 1.0, "input_clamp": None, "output_clamp": None} | fields)).build()


def test_importance_weighted_k3() -> None:
    # r = 0.69315, 0, -0.40547: k3 0.30685, 0, 0.07214; weights e^-1.19315, e^0.5, e^0.20547
    value = penalty(importance_weighted=True)(torch.tensor(CURRENT), torch.tensor(OLD), torch.tensor(SAMPLER))
    assert value.tolist() == close(0.09306, 0, 0.08859)


def test_estimators_with_and_without_clamps() -> None:
    logprobs, reference = torch.tensor([-1.0, -1.0, -1.0]), torch.tensor([0.0, -15.0, -30.0])
    r = reference - logprobs  # 1, -14, -29
    assert estimate(r, KlEstimator.k1).tolist() == close(-1, 14, 29)
    assert estimate(r, KlEstimator.k2).tolist() == close(0.5, 98, 420.5)
    assert estimate(r, KlEstimator.k3).tolist() == close(0.7183, 13, 28)
    assert estimate(r, KlEstimator.absolute).tolist() == close(1, 14, 29)
    for estimator, first in (("k1", -1), ("k2", 0.5), ("k3", 0.7183)):
        bounded = penalty(estimator=KlEstimator(estimator), input_clamp=20.0, output_clamp=10.0)
        assert bounded(logprobs, reference, None).tolist() == close(first, 10, 10)


def test_a_clamped_input_gives_no_gradient_through_value_or_weight() -> None:
    # r = 3, clamped to 2: e^2 - 3; r = 1: e - 2. Gradient of w * k3 with w = 1: k3 - (e - 1) = -1
    logprobs = torch.tensor([-3.0, -1.0], requires_grad=True)
    value = penalty(importance_weighted=True, input_clamp=2.0)(logprobs, torch.zeros(2), logprobs.detach())
    value.sum().backward()
    assert value.tolist() == close(4.389056, 0.7182818)
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([0, -1], abs=1e-6)


def test_the_adaptive_coefficient_moves_toward_the_target() -> None:
    # the error is bounded to 0.2: 0.2 * (1 + 0.2 * 10 / 100)
    assert adapted(0.2, 0.2, target=0.1, horizon=100, rollouts=10) == pytest.approx(0.2 * 1.02)
    assert adapted(0.2, 0.0, target=0.1, horizon=100, rollouts=10) == pytest.approx(0.2 * 0.98)
    assert adapted(0.2, 0.11, target=0.1, horizon=100, rollouts=10) == pytest.approx(0.2 * 1.01)


def test_the_adaptive_coefficient() -> None:
    # error 0.1: 1 * (1 + 0.1 * 20 / 100); beyond 0.2 it is bounded, either way; at the target it stays
    assert adapted(1.0, 1.1, target=1.0, horizon=100, rollouts=20) == pytest.approx(1.02)
    assert adapted(1.0, 9.0, target=1.0, horizon=100, rollouts=50) == pytest.approx(1.1)
    assert adapted(0.5, 0.0, target=1.0, horizon=100, rollouts=50) == pytest.approx(0.45)
    assert adapted(0.5, 1.0, target=1.0, horizon=100, rollouts=50) == pytest.approx(0.5)


def test_no_penalty() -> None:
    part = NoKlConfig().build()
    assert part(torch.tensor([-1.0, -2.0]), torch.tensor([0.0, 0.0]), None).tolist() == [0, 0]
    assert part.next_coefficient(0.3, 9.0, 10) == 0.3
    assert NoKlConfig().coefficient == 0.0


def test_kl_in_the_reward_reaches_every_estimator() -> None:
    two = batch([(0, [0, 1, 1]), (1, [0, 1])], rewards=[1, 0])
    told = dataclasses.replace(
        two,
        rollout_logprobs=f32(0, -1, -1, 0, -1),
        scores=Scores(reference_logprobs=f32(0, -1.5, -2, 0, -0.5)),
    )
    penalty = PenaltyConfig(place=KlPlace.reward, estimator=KlEstimator.k1, coefficient=0.1)
    # k1: 0.5, 1 | -0.5; rewards 1 - 0.15 and 0 + 0.05: apart by 0.8
    bundle = algorithm(advantage=GrpoConfig(divide_by_std=False), kl=penalty)
    ready = bundle.prepared(told)
    assert ready.advantages.tolist() == close(0.4, 0.4, 0.4, -0.4, -0.4)
    assert ready.kl == pytest.approx(1 / 3)
    # token by token: returns 1 - 0.15, 1 - 0.1 | 0.05
    returns = algorithm(advantage=ReinforcePlusPlusConfig(whiten=False), kl=penalty).prepared(told)
    assert returns.advantages.tolist() == close(0, 0.85, 0.9, 0, 0.05)
    assert bundle.config.needs == {Need.REFERENCE_LOGPROBS}


def test_kl_in_the_loss_is_added_with_its_coefficient() -> None:
    bundle = algorithm(kl=PenaltyConfig(estimator=KlEstimator.k2, coefficient=0.5), loss=ReinforceConfig())
    told = dataclasses.replace(
        loss_input([-1.0, -2.0], [-1.0, -2.0], [1.0, 0.0]),
        reference_logprobs=torch.tensor([-3.0, -2.0]),
        kl_coefficient=0.5,
    )
    terms = bundle.token_loss(told)
    assert terms.loss.tolist() == close(1 + 0.5 * 2, 0)
    assert terms.metrics["reference_kl"].tolist() == close(2, 0)
    assert bundle.config.trains_without_advantage


@given(
    estimator=st.sampled_from(list(KlEstimator)),
    p=st.lists(st.floats(-6, 0), min_size=1, max_size=8),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=100)
def test_divergences_and_their_gradients_are_those_of_the_naive_reference(
    estimator: KlEstimator, p: list[float], seed: int
) -> None:
    other = np.random.default_rng(seed).uniform(-6, 0, len(p))
    logprobs = torch.tensor(p, dtype=torch.float64, requires_grad=True)
    value = estimate(torch.from_numpy(other) - logprobs, estimator)
    (gradient,) = torch.autograd.grad(value.sum(), logprobs)
    expected = [naive.kl(x, float(q), estimator) for x, q in zip(logprobs, other, strict=True)]
    (expected_gradient,) = torch.autograd.grad(torch.stack(expected).sum(), logprobs)
    np.testing.assert_allclose(value.detach(), torch.stack(expected).detach(), atol=1e-6)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-6)

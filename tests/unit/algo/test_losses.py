"""Losses without a clip, and every loss against the naive float64 reference."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import naive
import numpy as np
import pytest
import torch
from algo_cases import OLD, A, close, loss_input, losses_and_gradients
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agent.algo.loss.cispo import CispoConfig
from rl_agent.algo.loss.distillation import DistillationConfig
from rl_agent.algo.loss.dppo import Divergence, DppoConfig
from rl_agent.algo.loss.dro import DroConfig
from rl_agent.algo.loss.reinforce import ReinforceConfig
from rl_agent.algo.loss.sapo import SapoConfig
from rl_agent.algo.loss.sft import SftConfig
from rl_agent.errors import LawError
from tests.laws.algorithms import algorithm, batches, current, loss_and_gradient

if TYPE_CHECKING:
    from rl_agent.algo.base import LossInput
    from rl_agent.algo.batch import TrainBatch


def test_sft_is_the_negative_log_likelihood_times_the_advantage() -> None:
    current = torch.tensor([-0.5, -2.0], requires_grad=True)
    terms = SftConfig().build()(loss_input(current, [0.0, 0.0], [1.0, 2.0]))
    terms.loss.sum().backward()
    assert terms.loss.tolist() == [0.5, 4.0]
    assert terms.metrics["nll"].tolist() == [0.5, 2.0]
    assert current.grad is not None
    assert current.grad.tolist() == [-1.0, -2.0]


def test_sft() -> None:
    # the same, by likelihood alone
    loss, gradient = losses_and_gradients(SftConfig().build(), [1, 3, 0.2], [1, 2, 0])
    assert loss == close(0.6931, 1.3863, 0)
    assert gradient == close(-1, -2, 0)


def test_an_impossible_token_has_a_finite_loss_without_gradient() -> None:
    # -2 * -3 = 6; an impossible token: -1 * -10,000, without gradient; a factor of 0: nothing
    logprobs = torch.tensor([-3.0, -math.inf, -math.inf], requires_grad=True)
    loss = SftConfig().build()(loss_input(logprobs, [0.0] * 3, [2.0, 1.0, 0.0])).loss
    loss.sum().backward()
    assert loss.tolist() == [6, 10_000, 0]
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [-2, 0, 0]


def test_reinforce_of_three_tokens() -> None:
    # -1 * -0.5, 1 * -1, -2 * -1.5
    loss = ReinforceConfig().build()(loss_input([-0.5, -1.0, -1.5], OLD, A)).loss
    assert loss.tolist() == close(0.5, -1, 3)
    assert float(loss.mean()) == pytest.approx(0.8333, abs=1e-4)


def test_reinforce() -> None:
    # -A log p with log p = -0.6931, whatever the ratio: A = 1: 0.6931; A = -2: -1.3863; A = 0: nothing
    loss, gradient = losses_and_gradients(ReinforceConfig().build(), [1, 3, 0.2], [1, -2, 0])
    assert loss == close(0.6931, -1.3863, 0)
    assert gradient == close(-1, 2, 0)


@pytest.mark.parametrize(
    ("low", "high", "ratios", "clipped"),
    [(0.2, 0.28, [1, 1.14, 1.56, 0.4], [1, 1.14, 1.28, 0.8]), (1.0, 4.0, [1, 3, 9, 0.4], [1, 3, 5, 0.4])],
)
def test_cispos_gradient_goes_through_the_log_probability_alone(
    low: float, high: float, ratios: list[float], clipped: list[float]
) -> None:
    advantages = [1.0, -0.5, 2.0, -1.0]
    logprobs = torch.tensor([-0.7, -1.2, -0.4, -2.1], requires_grad=True)
    old = logprobs.detach() - torch.tensor(ratios).log()
    terms = CispoConfig(clip_low=low, clip_high=high).build()(loss_input(logprobs, old, advantages))
    terms.loss.sum().backward()
    expected = [-c * a for c, a in zip(clipped, advantages, strict=True)]
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == close(*expected)
    assert terms.loss.tolist() == close(*(e * p for e, p in zip(expected, [-0.7, -1.2, -0.4, -2.1], strict=True)))


def test_cispo() -> None:
    # weight bounded to 0.8 ... 1.2; loss -w A log p, gradient -w A
    cispo = CispoConfig(clip_low=0.2, clip_high=0.2).build()
    loss, gradient = losses_and_gradients(cispo, [1.1, 2, 0.5], [1, 2, -1])
    assert loss == close(1.1 * 0.693147, 2.4 * 0.693147, -0.8 * 0.693147)
    assert gradient == close(-1.1, -2.4, 0.8)


def inputs(ratios: list[float], advantages: list[float], **more: Any) -> LossInput:
    logprobs = [math.log(0.5)] * len(ratios)
    old = [p - math.log(r) for p, r in zip(logprobs, ratios, strict=True)]
    return dataclasses.replace(loss_input(logprobs, old, advantages), **more)


def test_sapo_of_two_ratios() -> None:
    sapo = SapoConfig(tau_good=1.0, tau_bad=1.05).build()
    # sigmoid(0) = 0.5, sigmoid(1) = 0.73106; -(-1) * 4 / 1.05 * sigmoid(1.05)
    terms = sapo(inputs([1, 2, 2, 1], [1, 1, -1, -1]))
    assert terms.loss.tolist() == close(-2, -2.9242, 4 / 1.05 * 0.740775, 2 / 1.05)
    assert terms.metrics["gate"].tolist() == close(1, 0.7864, 4 * 0.740775 * 0.259225, 1)


def test_sapo() -> None:
    # tau 1: -A * 4 * sigmoid(r - 1); gradient -A * 4 s (1 - s) r. s(0) = 0.5, s(-0.5) = 0.3775
    # tau 2, A = -1: 2 * sigmoid(2 (r - 1)); r = 1.5: s(1) = 0.7311, gradient 4 * 0.1966 * 1.5
    sapo = SapoConfig(tau_good=1.0, tau_bad=2.0).build()
    loss, gradient = losses_and_gradients(sapo, [1, 0.5, 1.5], [1, 2, -1])
    assert loss == close(-2, -8 * 0.377541, 2 * 0.731059)
    assert gradient == close(-1, -8 * 0.377541 * 0.622459 * 0.5, 4 * 0.731059 * 0.268941 * 1.5)


def test_dro_of_two_tokens() -> None:
    # -(2 * -0.8 - 0.025 * 0.04) = 1.601; -(-1.5 * -0.9 - 0.025 * 0.04) = -1.349; the third is masked
    loss = DroConfig(beta=0.05).build()(loss_input([-0.8, -0.9, -0.1], [-1.0, -0.7, -0.2], [2.0, -1.5, 9.0])).loss
    assert loss[:2].tolist() == close(1.601, -1.349)
    assert float(loss[:2].mean()) == pytest.approx(0.126, abs=1e-4)


def test_dro() -> None:
    # -A log p + beta / 2 * log(r)^2; gradient -A + beta log r. beta = 2: A = 1, r = 1: 0.6931; r = 2: 0.6931 + 0.4805
    loss, gradient = losses_and_gradients(DroConfig(beta=2.0).build(), [1, 2, 0.5], [1, 1, 0])
    assert loss == close(0.6931, 0.6931 + 0.4805, 0.4805)
    assert gradient == close(-1, -1 + 1.3863, -1.3863)
    # without the pull it is REINFORCE
    loss, gradient = losses_and_gradients(DroConfig(beta=0.0).build(), [3, 3], [1, -2])
    assert loss == close(0.6931, -1.3863)
    assert gradient == close(-1, 2)


def test_dppo_drops_a_token_that_would_move_further() -> None:
    dppo = DppoConfig(divergence=Divergence.tv, limit_low=0.15, limit_high=0.15, tau=0.1).build()
    p = torch.tensor([0.7, 0.7, 0.3, 0.3, 0.03]).log()
    q = torch.tensor([0.5, 0.5, 0.5, 0.5, 0.01]).log()
    terms = dppo(loss_input(p, q, [1.0, -1.0, -1.0, 1.0, 1.0]))
    assert terms.metrics["clip_fraction"].tolist() == [True, False, True, False, False]
    up, down, rare = 0.1 * math.log(1.4) ** 2, 0.1 * math.log(0.6) ** 2, 0.1 * math.log(3.0) ** 2
    assert terms.loss.tolist() == close(up, 1.4 + up, down, -0.6 + down, -3 + rare)


def test_dppo() -> None:
    # p = 0.5. Total variation, limit 0.2: q = 0.25 (r = 2) is 0.25 away: dropped with A > 0, kept with A < 0: 2
    # q = 0.4 (r = 1.25): 0.1 away, kept: -1.25; q = 1 (r = 0.5): 0.5 away, dropped with A < 0, kept with A > 0: -0.5
    tv = DppoConfig(divergence=Divergence.tv, limit_low=0.2, limit_high=0.2, tau=0.0).build()
    loss, gradient = losses_and_gradients(tv, [2, 2, 1.25, 0.5, 0.5], [1, -1, 1, -1, 1])
    assert loss == close(0, 2, -1.25, 0, -0.5)
    assert gradient == close(0, 2, -1.25, 0, -0.5)
    # with tau = 0.5 the dropped token is pulled back: 0.5 * ln(2)^2 = 0.2402, gradient ln 2
    pulled = DppoConfig(limit_low=0.2, limit_high=0.2, tau=0.5).build()
    loss, gradient = losses_and_gradients(pulled, [2, 1], [1, 1])
    assert loss == close(0.2402, -1)
    assert gradient == close(0.6931, -1)


def test_dppo_by_the_divergence() -> None:
    dppo = DppoConfig(divergence=Divergence.kl, limit_low=0.05, limit_high=0.05, tau=0.0).build()
    # p = 0.5 in all: q = 0.25: 0.25 ln 0.5 + 0.75 ln 1.5 = 0.1308; q = 0.4: 0.0201; q = 0.75: 0.1308
    terms = dppo(inputs([2, 1.25, 2 / 3, 2 / 3], [1, 1, -1, 1]))
    assert terms.metrics["clip_fraction"].tolist() == [True, False, True, False]
    assert terms.loss.tolist() == close(0, -1.25, 0, -2 / 3)


def test_distillation() -> None:
    learn = DistillationConfig(teacher="t", coefficient=1.0, reward_weight=0.0).build()
    both = DistillationConfig(teacher="t", coefficient=0.5, reward_weight=2.0).build()
    base = loss_input([-2.0, -1.0, -1.0], [-2.0, -1.0, -1.0 - math.log(2)], [1.0, 1.0, 1.0])
    told = dataclasses.replace(base, teacher_logprobs=torch.tensor([-1.0, -1.0, -3.0]))
    terms = learn(told)
    assert terms.loss.tolist() == close(-1, 0, 4)  # gaps 1, 0, -2; ratios 1, 1, 2
    assert terms.metrics["teacher_kl"].tolist() == close(-1, 0, 2)
    assert both(told).loss.tolist() == close(-2.5, -2, -2)
    with pytest.raises(LawError, match="teacher"):
        learn(base)


def reference(name: str, bundle: Any, batch: TrainBatch) -> tuple[float, np.ndarray]:
    """Return loss and gradient of the batch, computed token by token."""
    parameters = current(batch).requires_grad_()
    ready = bundle.prepared(batch)
    weights = bundle.weights(batch)
    total: Any = 0.0 * parameters.sum()
    starts = batch.segment_starts()
    teacher = batch.scores.teacher_logprobs
    assert teacher is not None
    for start, size in zip(starts, batch.segment_lengths, strict=True):
        places = [t for t in range(start, start + size) if batch.loss_mask[t]]
        ps = [parameters[int(batch.tokens[t])] for t in places]
        qs = [float(ready.old_logprobs[t]) for t in places]
        a = [float(ready.advantages[t]) for t in places]
        if name in naive.SEQUENCE:
            losses = naive.SEQUENCE[name](ps, qs, a) if places else []
        else:
            marks = [ready.marked is not None and bool(ready.marked[t]) for t in places]
            losses = [
                naive.TOKEN[name](p, q, own, marked=mark, teacher=float(teacher[t]))
                for p, q, own, mark, t in zip(ps, qs, a, marks, places, strict=True)
            ]
        for t, loss in zip(places, losses, strict=True):
            factor = 1.0 if ready.correction is None else float(ready.correction[t])
            total = total + float(weights[t]) * factor * loss
    total.backward()
    assert parameters.grad is not None
    return total.item(), parameters.grad.numpy()


@given(
    name=st.sampled_from([*naive.TOKEN, *naive.SEQUENCE]),
    correction=st.sampled_from(["none", "truncated", "decoupled"]),
    batch=batches(),
)
@settings(deadline=None, max_examples=150)
def test_loss_and_gradient_are_those_of_the_naive_reference(name: str, correction: str, batch: TrainBatch) -> None:
    bundle = algorithm("grpo", advantage="grpo_no_std", loss=name, correction=correction)
    loss, gradient = loss_and_gradient(bundle, batch)
    expected, expected_gradient = reference(name, bundle, batch)
    assert loss == pytest.approx(expected, abs=1e-6)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-6)

"""Clipped losses: PPO, dual clip, GSPO, GMPO and the losses of high covariance."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from algo_cases import CURRENT, OLD, A, batch, close, f32, loss_input, losses_and_gradients

from rl_agent.algo.covariance import covariances, shuffled_rank
from rl_agent.algo.loss.clip_cov import ClipCovConfig
from rl_agent.algo.loss.dual_clip import DualClipConfig
from rl_agent.algo.loss.geometric_mean import GeometricMeanConfig
from rl_agent.algo.loss.gspo import GspoConfig, RatioLevel
from rl_agent.algo.loss.kl_cov import KlCovConfig
from rl_agent.algo.loss.ppo_clip import PpoClipConfig, clipped_surrogate
from rl_agent.algo.scores import Scores

if TYPE_CHECKING:
    from rl_agent.algo.base import LossInput


def test_ppo_takes_the_larger_of_the_free_and_the_clipped_loss() -> None:
    # -1 * 0.5 against -1 * 0.8; 1 * 1; -2 * 1.5 against -2 * 1.2
    terms = PpoClipConfig(clip_low=0.2, clip_high=0.2).build()(loss_input(CURRENT, OLD, A))
    assert terms.loss.tolist() == pytest.approx([-0.5, 1.0, -2.4], abs=1e-6)
    assert float(terms.loss.mean()) == pytest.approx(-0.6333, abs=1e-4)
    assert terms.metrics["clip_fraction"].tolist() == [0, 0, 1]
    assert terms.metrics["ratio"].tolist() == pytest.approx([0.5, 1, 1.5])


def test_the_two_bounds_are_independent() -> None:
    # up: ratio 1.5 is cut at 1.28; down: a ratio of 0.5 with a negative advantage is cut at 0.8
    terms = PpoClipConfig(clip_low=0.2, clip_high=0.28).build()(
        loss_input([CURRENT[2], CURRENT[0]], OLD[:2], [2.0, -1.0])
    )
    assert terms.loss.tolist() == pytest.approx([-2.56, 0.8], abs=1e-6)


def test_a_clipped_token_gives_no_gradient_and_a_free_one_minus_advantage_times_ratio() -> None:
    current = torch.tensor(CURRENT, requires_grad=True)
    PpoClipConfig(clip_low=0.2, clip_high=0.2).build()(loss_input(current, OLD, A)).loss.sum().backward()
    assert current.grad is not None
    assert current.grad.tolist() == pytest.approx([-0.5, 1.0, 0.0], abs=1e-6)


def test_a_token_that_the_sampler_thought_impossible_stays_finite() -> None:
    current = torch.tensor([0.0], requires_grad=True)
    loss = PpoClipConfig(clip_low=0.2, clip_high=0.28).build()(loss_input(current, [-1000.0], [-1.0])).loss.sum()
    loss.backward()
    assert current.grad is not None
    assert math.isfinite(loss.item())
    assert math.isfinite(float(current.grad[0]))


def test_ppo_clip_is_bit_for_bit_the_textbook_formula() -> None:
    random = torch.Generator().manual_seed(0)
    values = torch.randn(4, 20_000, generator=random)
    advantages, weights = values[2], values[3].abs() / 20_000
    gradients, losses = [], []
    for written in (True, False):
        current = (values[0] - 2).requires_grad_()
        old = values[0] - 2 + 0.3 * values[1]
        if written:
            told = loss_input(current, old, advantages)
            loss = PpoClipConfig(clip_low=0.2, clip_high=0.28).build()(told).loss
        else:
            ratio = (current - old).clamp(-20, 20).exp()
            loss = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.28))
        (weights * loss).sum().backward()
        gradients.append(current.grad)
        losses.append(loss.detach())
    assert torch.equal(losses[0], losses[1])
    assert gradients[0] is not None
    assert gradients[1] is not None
    assert torch.equal(gradients[0], gradients[1])


def test_ppo_clip_of_three_ratios() -> None:
    # -1 * 0.5 against -0.8; 1; -2 * 1.5 against -2 * 1.2
    loss = PpoClipConfig(clip_low=0.2, clip_high=0.2).build()(loss_input(CURRENT, OLD, A)).loss
    assert loss.tolist() == close(-0.5, 1, -2.4)
    assert float(loss.mean()) == pytest.approx(-0.6333, abs=1e-4)


def test_ppo_clip() -> None:
    # bounds 0.7 and 1.3. A = 2: r = 1.2 free: -2.4; r = 1.5 at 1.3: -2.6, no gradient; r = 0.5: free, -1
    # A = -1: r = 1.5 free: 1.5; r = 0.5 at 0.7: 0.7, no gradient
    loss, gradient = losses_and_gradients(
        PpoClipConfig(clip_low=0.3, clip_high=0.3).build(), [1.2, 1.5, 0.5, 1.5, 0.5], [2, 2, 2, -1, -1]
    )
    assert loss == close(-2.4, -2.6, -1, 1.5, 0.7)
    assert gradient == close(-2.4, 0, -1, 1.5, 0)


def test_the_clipped_surrogate_of_any_log_ratio() -> None:
    log = torch.tensor([0.0, math.log(2.0), 50.0, -50.0], requires_grad=True)
    terms = clipped_surrogate(log, torch.tensor([1.0, -1.0, -1.0, 1.0]), 0.2, 0.2)
    # 1: -1; 2 with A < 0 is free: 2; beyond e^20 the ratio is clamped: e^20 with A < 0, e^-20 with A > 0, no gradient
    assert terms.loss.tolist() == pytest.approx([-1, 2, math.exp(20), -math.exp(-20)], rel=1e-5)
    terms.loss.sum().backward()
    assert log.grad is not None
    assert log.grad.tolist() == close(-1, 2, 0, 0)


def test_dual_clip_bounds_a_bad_token() -> None:
    # -1 * 0.5; 1; max(40, 4.8) bounded by 4 * 3
    loss = (
        DualClipConfig(clip_low=0.2, clip_high=0.2, clip_bad=3.0)
        .build()(loss_input([math.log(0.5), 0.0, math.log(10.0)], [0.0, 0.0, 0.0], [1.0, -1.0, -4.0]))
        .loss
    )
    assert loss.tolist() == close(-0.5, 1, 12)
    assert float(loss.mean()) == pytest.approx(4.1667, abs=1e-4)


def test_dual_clip_leaves_good_tokens_and_small_ratios() -> None:
    loss = (
        DualClipConfig(clip_low=0.2, clip_high=0.2, clip_bad=1.5)
        .build()(loss_input([math.log(2.0), math.log(2.0), math.log(0.5)], [0.0, 0.0, 0.0], [2.0, -2.0, 2.0]))
        .loss
    )
    assert loss.tolist() == close(-2.4, 3, -1)


def test_dual_clip() -> None:
    # A = -2, c = 3: r = 2: 4 below the bound of 6; r = 4: 8 bounded by 6, no gradient; r = 0.5 at 0.8: 1.6
    # A = 2, r = 4: PPO's -2 * 1.2, whatever c is
    dual = DualClipConfig(clip_low=0.2, clip_high=0.2, clip_bad=3.0).build()
    loss, gradient = losses_and_gradients(dual, [2, 4, 0.5, 4], [-2, -2, -2, 2])
    assert loss == close(4, 6, 1.6, -2.4)
    assert gradient == close(4, 0, 0, 0)


def test_gspos_ratio_is_the_geometric_mean_over_valid_tokens() -> None:
    gspo = GspoConfig(clip_low=0.2, clip_high=0.2, level=RatioLevel.sequence).build()
    inputs = loss_input([*CURRENT, -50.0], [*OLD, -1.0], [*A, 1.0])
    masked = replace(inputs, loss_mask=torch.tensor([True, True, True, False]))
    terms = gspo(masked)
    assert terms.metrics["ratio"][0].item() == pytest.approx(0.9086, abs=1e-4)
    assert terms.loss[:3].tolist() == close(-0.9086, 0.9086, -1.8171)


def test_gspo() -> None:
    # ratios 2, 2, 0.5, 1: s = (2 * 2 * 0.5 * 1)^(1/4) = 2^(1/4) = 1.1892, within 1.3
    gspo = GspoConfig(clip_low=0.3, clip_high=0.3, level=RatioLevel.sequence).build()
    loss, gradient = losses_and_gradients(gspo, [2, 2, 0.5, 1], [1, 1, 1, 1])
    assert loss == close(*[-1.1892] * 4)
    assert gradient == close(*[-1.1892] * 4)  # 4 tokens, each with a quarter of every token's
    # s = sqrt(2 * 1) = 1.4142, bounded for A > 0: -1.3, no gradient; A = -1 is free: 1.4142, half of which at each of the two
    loss, gradient = losses_and_gradients(gspo, [2, 1], [1, -1])
    assert loss == close(-1.3, 1.4142)
    assert gradient == close(0.7071, 0.7071)
    # s = sqrt(0.25 * 1) = 0.5: A > 0 free: -0.5; A < 0 at 0.7, no gradient
    loss, gradient = losses_and_gradients(gspo, [0.25, 1], [1, -1])
    assert loss == close(-0.5, 0.7)
    assert gradient == close(-0.25, -0.25)


def test_gspo_of_tokens() -> None:
    # the sequence's values, but each token's gradient is its own: -A s where the free term holds
    gspo = GspoConfig(clip_low=0.3, clip_high=0.3, level=RatioLevel.token).build()
    loss, gradient = losses_and_gradients(gspo, [2, 2, 0.5, 1], [1, 1, 1, 1])
    assert loss == close(*[-1.1892] * 4)
    assert gradient == close(*[-1.1892] * 4)
    loss, gradient = losses_and_gradients(gspo, [2, 1], [1, -1])
    assert loss == close(-1.3, 1.4142)
    assert gradient == close(0, 1.4142)
    loss, gradient = losses_and_gradients(gspo, [0.25, 1], [1, -1])
    assert loss == close(-0.5, 0.7)
    assert gradient == close(-0.5, 0)


def test_gspo_of_tokens_has_the_value_of_the_sequence_and_a_gradient_of_each_token() -> None:
    current = torch.tensor([-1.0, -2.0], requires_grad=True)
    gspo = GspoConfig(clip_low=0.2, clip_high=0.2, level=RatioLevel.token).build()
    terms = gspo(loss_input(current, [-1.1, -2.1], [1.0, 3.0]))  # s = e^0.1
    assert terms.loss.tolist() == close(-1.1052, -3.3155)
    terms.loss.sum().backward()
    assert current.grad is not None
    assert current.grad.tolist() == close(-1.1052, -3.3155)


def inputs(ratios: list[float], advantages: list[float], **more: Any) -> LossInput:
    logprobs = [math.log(0.5)] * len(ratios)
    old = [p - math.log(r) for p, r in zip(logprobs, ratios, strict=True)]
    return dataclasses.replace(loss_input(logprobs, old, advantages), **more)


def test_geometric_mean_of_three_tokens() -> None:
    gmpo = GeometricMeanConfig(clip_low=0.4, clip_high=0.4).build()
    # logs -0.6931, 0, 1 bounded above at 0.4: mean -0.0977
    assert gmpo(inputs([0.5, 1, math.e], [1, 1, 1])).loss.tolist() == close(*[-0.9069] * 3)
    # with A < 0 bounded below at -0.4: mean 0.2
    assert gmpo(inputs([0.5, 1, math.e], [-1, -1, -1])).loss.tolist() == close(*[math.exp(0.2)] * 3)
    assert gmpo(inputs([1, 1], [2, 2])).loss.tolist() == close(-2, -2)


def test_geometric_mean() -> None:
    # A > 0: ln 2 bounded by 0.4, ln 0.5 = -0.6931 free: mean -0.1466, e^ = 0.8637; half a gradient each, none at the bounded one
    gmpo = GeometricMeanConfig(clip_low=0.4, clip_high=0.4).build()
    loss, gradient = losses_and_gradients(gmpo, [2, 0.5], [1, 1])
    assert loss == close(*[-0.8637] * 2)
    assert gradient == close(0, -0.8637)
    # A < 0: ln 2 free, ln 0.5 bounded by -0.4: mean 0.1466, e^ = 1.1578
    loss, gradient = losses_and_gradients(gmpo, [2, 0.5], [-1, -1])
    assert loss == close(*[1.1578] * 2)
    assert gradient == close(1.1578, 0)
    # one token within the bounds is PPO's: -3 * 1.1
    loss, gradient = losses_and_gradients(gmpo, [1.1], [3])
    assert loss == close(-3.3)
    assert gradient == close(-3.3)


def test_covariances_and_what_they_mark() -> None:
    one = batch([(0, [0, 1, 1, 1, 1])], rewards=[1])
    told = dataclasses.replace(one, rollout_logprobs=f32(0, -1, -3, -1, -3))
    # advantages 1, -1, 1, -1 (mean 0), log-probabilities about -2: 1 each; then one that stands out
    assert covariances(told, f32(0, 1, -1, 1, -1)).tolist() == close(0, 1, 1, 1, 1)
    # means 0.5 and -2: 2.5, 0.5, -0.5, 1.5
    uneven = f32(0, 3, 0, 0, -1)
    assert covariances(told, uneven).tolist() == close(0, 2.5, 0.5, -0.5, 1.5)
    # recomputed log-probabilities come before the sampler's: -1, -1, -5, -5 (mean -3) and advantages 1, 1, -1, -1
    rescored = dataclasses.replace(told, scores=Scores(old_logprobs=f32(0, -1, -1, -5, -5)))
    assert covariances(rescored, f32(0, 1, 1, -1, -1)).tolist() == close(0, 2, 2, 2, 2)
    assert KlCovConfig(share=0.25, coefficient=1.0).build().marks(told, uneven).tolist() == [
        False,
        True,
        False,
        False,
        False,
    ]
    assert KlCovConfig(share=0.5, coefficient=1.0).build().marks(told, uneven).tolist() == [
        False,
        True,
        False,
        False,
        True,
    ]
    drawn = ClipCovConfig(clip_low=0.2, clip_high=0.2, share=0.25, covariance_low=1.0, covariance_high=5.0).build()
    assert drawn.marks(told, uneven).sum() == 1
    assert drawn.marks(told, uneven)[[1, 4]].any()
    nothing = ClipCovConfig(clip_low=0.2, clip_high=0.2, share=0.25, covariance_low=3.0, covariance_high=5.0).build()
    assert not nothing.marks(told, uneven).any()


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


def test_kl_cov_and_clip_cov_treat_marked_tokens_differently() -> None:
    marked = torch.tensor([False, True])
    assert KlCovConfig(share=0.5, coefficient=2.0).build()(
        inputs([2, 2], [1, 1], marked=marked)
    ).loss.tolist() == close(-2, -2 + 2 * 0.6931)
    current = torch.tensor([-1.0, -1.0], requires_grad=True)
    cov = ClipCovConfig(clip_low=0.2, clip_high=0.2, share=0.5, covariance_low=1.0, covariance_high=5.0).build()
    terms = cov(dataclasses.replace(loss_input(current, [-1.0, -1.0], [1.0, 1.0]), marked=marked))
    terms.loss.sum().backward()
    assert terms.loss.tolist() == close(-1, -1)
    assert current.grad is not None
    assert current.grad.tolist() == close(-1, 0)


def test_kl_cov() -> None:
    # -A r, and at marked tokens + c |log r|: gradient -A r + c sign(log r). c = 2: r = 2: -2 + 1.3863; r = 0.5: -0.5 + 1.3863
    loss, gradient = losses_and_gradients(
        KlCovConfig(share=0.5, coefficient=2.0).build(),
        [2, 0.5, 2],
        [1, 1, 1],
        marked=torch.tensor([True, True, False]),
    )
    assert loss == close(-0.6137, 0.8863, -2)
    assert gradient == close(0, -2.5, -2)


def test_clip_cov() -> None:
    # PPO's values; marked tokens have no gradient: r = 1.1: -1.1; r = 1.5 at 1.2; r = 0.5 with A < 0 at 0.8
    cov = ClipCovConfig(clip_low=0.2, clip_high=0.2, share=0.1, covariance_low=0.0, covariance_high=1.0).build()
    loss, gradient = losses_and_gradients(
        cov, [1.1, 1.1, 1.5, 0.5], [1, 1, 1, -1], marked=torch.tensor([True, False, False, False])
    )
    assert loss == close(-1.1, -1.1, -1.2, 0.8)
    assert gradient == close(0, -1.1, 0, 0)

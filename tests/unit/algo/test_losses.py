"""Token losses against vectors worked by hand, and their gradients."""

from __future__ import annotations

import math

import pytest
import torch
from algo_cases import loss_input

from rl_agent.algo.loss.ppo_clip import PpoClipLoss
from rl_agent.algo.loss.sft import SftLoss

# ratios 0.5, 1, 1.5 against old log-probabilities of -1
CURRENT = [-1 + math.log(0.5), -1.0, -1 + math.log(1.5)]
OLD = [-1.0, -1.0, -1.0]
ADVANTAGES = [1.0, -1.0, 2.0]


def test_ppo_takes_the_larger_of_the_free_and_the_clipped_loss() -> None:
    # -1 * 0.5 against -1 * 0.8; 1 * 1; -2 * 1.5 against -2 * 1.2
    terms = PpoClipLoss(clip_low=0.2, clip_high=0.2)(loss_input(CURRENT, OLD, ADVANTAGES))
    assert terms.loss.tolist() == pytest.approx([-0.5, 1.0, -2.4], abs=1e-6)
    assert float(terms.loss.mean()) == pytest.approx(-0.6333, abs=1e-4)
    assert terms.metrics["clip_fraction"].tolist() == [0, 0, 1]
    assert terms.metrics["ratio"].tolist() == pytest.approx([0.5, 1, 1.5])


def test_the_two_bounds_are_independent() -> None:
    # up: ratio 1.5 is cut at 1.28; down: a ratio of 0.5 with a negative advantage is cut at 0.8
    terms = PpoClipLoss(clip_low=0.2, clip_high=0.28)(loss_input([CURRENT[2], CURRENT[0]], OLD[:2], [2.0, -1.0]))
    assert terms.loss.tolist() == pytest.approx([-2.56, 0.8], abs=1e-6)


def test_a_clipped_token_gives_no_gradient_and_a_free_one_minus_advantage_times_ratio() -> None:
    current = torch.tensor(CURRENT, requires_grad=True)
    PpoClipLoss(clip_low=0.2, clip_high=0.2)(loss_input(current, OLD, ADVANTAGES)).loss.sum().backward()
    assert current.grad is not None
    assert current.grad.tolist() == pytest.approx([-0.5, 1.0, 0.0], abs=1e-6)


def test_a_token_that_the_sampler_thought_impossible_stays_finite() -> None:
    current = torch.tensor([0.0], requires_grad=True)
    loss = PpoClipLoss(clip_low=0.2, clip_high=0.28)(loss_input(current, [-1000.0], [-1.0])).loss.sum()
    loss.backward()
    assert current.grad is not None
    assert math.isfinite(loss.item())
    assert math.isfinite(float(current.grad[0]))


def test_sft_is_the_negative_log_likelihood_times_the_advantage() -> None:
    current = torch.tensor([-0.5, -2.0], requires_grad=True)
    terms = SftLoss()(loss_input(current, [0.0, 0.0], [1.0, 2.0]))
    terms.loss.sum().backward()
    assert terms.loss.tolist() == [0.5, 4.0]
    assert terms.metrics["nll"].tolist() == [0.5, 2.0]
    assert current.grad is not None
    assert current.grad.tolist() == [-1.0, -2.0]


def test_the_written_down_gradient_is_bit_for_bit_that_of_recording_every_step() -> None:
    """So a learning curve does not depend on which of the two was used."""
    random = torch.Generator().manual_seed(0)
    values = torch.randn(4, 20_000, generator=random)
    advantages, weights = values[2], values[3].abs() / 20_000
    gradients, losses = [], []
    for written in (True, False):
        current = (values[0] - 2).requires_grad_()
        old = values[0] - 2 + 0.3 * values[1]
        if written:
            told = loss_input(current, old, advantages)
            loss = PpoClipLoss(clip_low=0.2, clip_high=0.28)(told).loss
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

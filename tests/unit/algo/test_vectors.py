"""Thirty worked vectors, one test each, with the derivation; from the formulas of the papers.

A = 1, -1, 2; proximal log-probabilities -1; current ones for ratios 0.5, 1, 1.5; the sampler's -0.5, -1.5, -0.8.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from algo_cases import algorithm, batch, loss_input

from rl_agent.algo.advantage.discount import discounted_sums
from rl_agent.algo.advantage.gae import generalised_advantages
from rl_agent.algo.advantage.grpo import group_advantages
from rl_agent.algo.advantage.maxrl import by_pass_rate
from rl_agent.algo.advantage.rloo import leave_one_out
from rl_agent.algo.advantage.spread import whitened
from rl_agent.algo.aggregation.rollout_mean import RolloutMean
from rl_agent.algo.aggregation.token_sum import TokenSum
from rl_agent.algo.base import CorrectionInput
from rl_agent.algo.correction.decoupled import Decoupled
from rl_agent.algo.correction.icepop import IcePop
from rl_agent.algo.correction.masked import Masked
from rl_agent.algo.correction.proximal import approximated
from rl_agent.algo.correction.truncated import Truncated
from rl_agent.algo.kl.adaptive import adapted
from rl_agent.algo.kl.estimate import estimate
from rl_agent.algo.kl.penalty import KlPenalty
from rl_agent.algo.loss.cispo import CispoLoss
from rl_agent.algo.loss.dppo import DppoLoss
from rl_agent.algo.loss.dro import DroLoss
from rl_agent.algo.loss.dual_clip import DualClipLoss
from rl_agent.algo.loss.gspo import GspoLoss
from rl_agent.algo.loss.ppo_clip import PpoClipLoss
from rl_agent.algo.loss.reinforce import ReinforceLoss
from rl_agent.algo.ratio import log_ratio
from rl_agent.algo.scores import Scores
from rl_agent.algo.shaping.overlong import overlong_penalty
from rl_agent.config.algo_loss import Divergence, RatioLevel
from rl_agent.config.algo_parts import (
    DecoupledConfig,
    IcePopConfig,
    KlEstimator,
    KlPlace,
    NoCorrectionConfig,
    Proximal,
    WeightLevel,
)

A = [1.0, -1.0, 2.0]
OLD = [-1.0, -1.0, -1.0]
CURRENT = [-1.69315, -1.0, -0.59453]
SAMPLER = [-0.5, -1.5, -0.8]
PPO = PpoClipLoss(clip_low=0.2, clip_high=0.2)


def close(*expected: float) -> Any:
    return pytest.approx(list(expected), abs=1e-4)


def corrected(old: Any, sampler: Any, mask: Any = None) -> CorrectionInput:
    """One sequence."""
    logs = log_ratio(torch.as_tensor(old), torch.as_tensor(sampler))
    kept = torch.ones(len(logs), dtype=torch.bool) if mask is None else torch.tensor(mask, dtype=torch.bool)
    return CorrectionInput(log_weights=logs, loss_mask=kept, sequence=torch.zeros(len(logs), dtype=torch.int64))


def penalty(**fields: Any) -> KlPenalty:
    values: dict[str, Any] = {
        "place": KlPlace.loss,
        "estimator": KlEstimator.k3,
        "coefficient": 1.0,
        "input_clamp": None,
        "output_clamp": None,
        "importance_weighted": False,
        "target": None,
        "horizon": 1,
        "reference": None,
    }
    return KlPenalty(**(values | fields))


def truncated(level: WeightLevel = WeightLevel.token, low: float = 0.0, high: float = 2.0) -> Truncated:
    return Truncated(proximal=Proximal.recomputed, level=level, low=low, high=high)


def test_01_ppo_clip() -> None:
    # -1 * 0.5 against -0.8; 1; -2 * 1.5 against -2 * 1.2
    loss = PPO(loss_input(CURRENT, OLD, A)).loss
    assert loss.tolist() == close(-0.5, 1, -2.4)
    assert float(loss.mean()) == pytest.approx(-0.6333, abs=1e-4)


def test_02_reinforce() -> None:
    # -1 * -0.5, 1 * -1, -2 * -1.5
    loss = ReinforceLoss()(loss_input([-0.5, -1.0, -1.5], OLD, A)).loss
    assert loss.tolist() == close(0.5, -1, 3)
    assert float(loss.mean()) == pytest.approx(0.8333, abs=1e-4)


def test_03_the_ratio_is_one_where_the_current_policy_is_the_proximal_one() -> None:
    bundle = algorithm(correction=NoCorrectionConfig(proximal=Proximal.current))
    terms = bundle.token_loss(loss_input(CURRENT, [-10.0, -10.0, -10.0], A))
    assert terms.loss.tolist() == close(-1, 1, -2)
    assert float(terms.loss.mean()) == pytest.approx(-0.6667, abs=1e-4)
    assert terms.metrics["ratio"].tolist() == [1, 1, 1]


def test_04_importance_weighted_ppo() -> None:
    # weights e^-0.5, e^0.5, e^-0.2 times -0.5, 1, -2.4
    weights = Decoupled(proximal=Proximal.recomputed, cap=None)(corrected(OLD, SAMPLER)).weights
    assert weights.tolist() == close(0.6065, 1.6487, 0.8187)
    loss = weights * PPO(loss_input(CURRENT, OLD, A)).loss
    assert loss.tolist() == close(-0.30327, 1.6487, -1.96495)
    assert float(loss.mean()) == pytest.approx(-0.2065, abs=1e-4)


def test_05_importance_weighted_k3() -> None:
    # r = 0.69315, 0, -0.40547: k3 0.30685, 0, 0.07214; weights e^-1.19315, e^0.5, e^0.20547
    value = penalty(importance_weighted=True)(torch.tensor(CURRENT), torch.tensor(OLD), torch.tensor(SAMPLER))
    assert value.tolist() == close(0.09306, 0, 0.08859)


def test_06_estimators_with_and_without_clamps() -> None:
    logprobs, reference = torch.tensor([-1.0, -1.0, -1.0]), torch.tensor([0.0, -15.0, -30.0])
    r = reference - logprobs  # 1, -14, -29
    assert estimate(r, KlEstimator.k1).tolist() == close(-1, 14, 29)
    assert estimate(r, KlEstimator.k2).tolist() == close(0.5, 98, 420.5)
    assert estimate(r, KlEstimator.k3).tolist() == close(0.7183, 13, 28)
    assert estimate(r, KlEstimator.absolute).tolist() == close(1, 14, 29)
    for estimator, first in (("k1", -1), ("k2", 0.5), ("k3", 0.7183)):
        bounded = penalty(estimator=KlEstimator(estimator), input_clamp=20.0, output_clamp=10.0)
        assert bounded(logprobs, reference, None).tolist() == close(first, 10, 10)


def test_07_a_clamped_input_gives_no_gradient_through_value_or_weight() -> None:
    # r = 3, clamped to 2: e^2 - 3; r = 1: e - 2. Gradient of w * k3 with w = 1: k3 - (e - 1) = -1
    logprobs = torch.tensor([-3.0, -1.0], requires_grad=True)
    value = penalty(importance_weighted=True, input_clamp=2.0)(logprobs, torch.zeros(2), logprobs.detach())
    value.sum().backward()
    assert value.tolist() == close(4.389056, 0.7182818)
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([0, -1], abs=1e-6)


def test_08_truncated_importance_sampling_of_tokens_and_of_the_sequence() -> None:
    of_tokens = truncated(high=0.8)(corrected(OLD, SAMPLER)).weights * PPO(loss_input(CURRENT, OLD, A)).loss
    assert of_tokens.tolist() == close(-0.3033, 0.8, -1.92)
    assert float(of_tokens.mean()) == pytest.approx(-0.4744, abs=1e-4)
    # the sequence's weight is e^(-0.5 + 0.5 - 0.2) = 0.8187, capped; its ratio 0.75^(1/3) = 0.9086
    gspo = GspoLoss(clip_low=0.2, clip_high=0.2, level=RatioLevel.sequence)
    weights = truncated(WeightLevel.sequence, high=0.8)(corrected(OLD, SAMPLER)).weights
    of_sequence = weights * gspo(loss_input(CURRENT, OLD, A)).loss
    assert of_sequence.tolist() == close(-0.7268, 0.7268, -1.4537)
    assert float(of_sequence.mean()) == pytest.approx(-0.4846, abs=1e-4)


def test_09_truncation_counts_what_it_bounds_on_either_side() -> None:
    logs = corrected([math.log(0.1), 0.0, math.log(3.0)], [0.0, 0.0, 0.0])
    above = truncated()(logs)
    assert above.weights.tolist() == close(0.1, 1, 2)
    assert float(above.corrected.float().mean()) == pytest.approx(1 / 3)
    both = truncated(low=0.5)(logs)
    assert both.weights.tolist() == close(0.5, 1, 2)
    assert float(both.corrected.float().mean()) == pytest.approx(2 / 3)
    assert float(-both.weights.mean()) == pytest.approx(-3.5 / 3)  # the loss of A = 1 at a ratio of 1


def test_10_icepop_rejects_what_is_beyond_its_bounds() -> None:
    # e^-0.5, e^2.5 = 12.182, e^-0.2 within 0.5 and 5
    terms = IcePop(proximal=Proximal.recomputed, low=0.5, high=5.0)(corrected(OLD, [-0.5, -3.5, -0.8]))
    assert terms.weights.tolist() == close(0.6065, 0, 0.8187)
    loss = terms.weights * -torch.tensor(A)
    assert float(loss.mean()) == pytest.approx((-0.6065 - 2 * 0.8187) / 3, abs=1e-4)


def test_11_masked_importance_sampling_keeps_a_sequence_by_its_geometric_mean() -> None:
    masked = Masked(proximal=Proximal.recomputed, level=WeightLevel.geometric, low=0.999, high=1.002, weighted=True)
    assert masked(corrected(OLD, [-1.0005] * 3)).weights.tolist() == close(1.0005, 1.0005, 1.0005)
    assert masked(corrected(OLD, [-1.003] * 3)).weights.tolist() == [0, 0, 0]
    impossible = masked(corrected(OLD, [-1.0, -1.0, -math.inf]))
    assert impossible.weights.tolist() == [0, 0, 0]


def test_12_dual_clip_bounds_a_bad_token() -> None:
    # -1 * 0.5; 1; max(40, 4.8) bounded by 4 * 3
    loss = DualClipLoss(clip_low=0.2, clip_high=0.2, clip_bad=3.0)(
        loss_input([math.log(0.5), 0.0, math.log(10.0)], [0.0, 0.0, 0.0], [1.0, -1.0, -4.0])
    ).loss
    assert loss.tolist() == close(-0.5, 1, 12)
    assert float(loss.mean()) == pytest.approx(4.1667, abs=1e-4)


def test_13_dual_clip_leaves_good_tokens_and_small_ratios() -> None:
    loss = DualClipLoss(clip_low=0.2, clip_high=0.2, clip_bad=1.5)(
        loss_input([math.log(2.0), math.log(2.0), math.log(0.5)], [0.0, 0.0, 0.0], [2.0, -2.0, 2.0])
    ).loss
    assert loss.tolist() == close(-2.4, 3, -1)


@pytest.mark.parametrize(
    ("low", "high", "ratios", "clipped"),
    [(0.2, 0.28, [1, 1.14, 1.56, 0.4], [1, 1.14, 1.28, 0.8]), (1.0, 4.0, [1, 3, 9, 0.4], [1, 3, 5, 0.4])],
)
def test_14_cispos_gradient_goes_through_the_log_probability_alone(
    low: float, high: float, ratios: list[float], clipped: list[float]
) -> None:
    advantages = [1.0, -0.5, 2.0, -1.0]
    logprobs = torch.tensor([-0.7, -1.2, -0.4, -2.1], requires_grad=True)
    old = logprobs.detach() - torch.tensor(ratios).log()
    terms = CispoLoss(clip_low=low, clip_high=high)(loss_input(logprobs, old, advantages))
    terms.loss.sum().backward()
    expected = [-c * a for c, a in zip(clipped, advantages, strict=True)]
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == close(*expected)
    assert terms.loss.tolist() == close(*(e * p for e, p in zip(expected, [-0.7, -1.2, -0.4, -2.1], strict=True)))


def test_15_gspos_ratio_is_the_geometric_mean_over_valid_tokens() -> None:
    gspo = GspoLoss(clip_low=0.2, clip_high=0.2, level=RatioLevel.sequence)
    inputs = loss_input([*CURRENT, -50.0], [*OLD, -1.0], [*A, 1.0])
    masked = replace(inputs, loss_mask=torch.tensor([True, True, True, False]))
    terms = gspo(masked)
    assert terms.metrics["ratio"][0].item() == pytest.approx(0.9086, abs=1e-4)
    assert terms.loss[:3].tolist() == close(-0.9086, 0.9086, -1.8171)


def test_16_dro() -> None:
    # -(2 * -0.8 - 0.025 * 0.04) = 1.601; -(-1.5 * -0.9 - 0.025 * 0.04) = -1.349; the third is masked
    loss = DroLoss(beta=0.05)(loss_input([-0.8, -0.9, -0.1], [-1.0, -0.7, -0.2], [2.0, -1.5, 9.0])).loss
    assert loss[:2].tolist() == close(1.601, -1.349)
    assert float(loss[:2].mean()) == pytest.approx(0.126, abs=1e-4)


REWARDS = np.array([6, 3, 9, 12, 1], dtype=np.float32)
GROUPS = np.array([0, 0, 1, 1, 2], dtype=np.int32)


def test_17_rloo() -> None:
    assert leave_one_out(REWARDS, GROUPS).tolist() == close(3, -3, -3, 3, 0)


def test_18_dr_grpo() -> None:
    got = group_advantages(REWARDS[:4], GROUPS[:4], divide_by_std=False, epsilon=0.0)
    assert got.tolist() == close(1.5, -1.5, -1.5, 1.5)


def test_19_maxrl() -> None:
    got = by_pass_rate(REWARDS[:4], GROUPS[:4], epsilon=1e-6)
    assert got.tolist() == close(1.5 / 4.5, -1.5 / 4.5, -1.5 / 10.5, 1.5 / 10.5)


def test_20_discounted_returns() -> None:
    assert discounted_sums(np.array([1, 2, 3]), np.array([3]), 0.5).tolist() == close(2.75, 3.5, 3)
    # a masked token is no part of the trajectory
    assert discounted_sums(np.array([1, 2]), np.array([2]), 1.0).tolist() == close(3, 2)


@pytest.mark.parametrize(
    ("gamma", "lam", "returns"), [(1, 1, [6, 5, 3]), (0.5, 1, [2.75, 3.5, 3]), (1, 0.5, [3.625, 4.25, 3])]
)
def test_21_gae(gamma: float, lam: float, returns: list[float]) -> None:
    values = np.array([0.5, 1, 1.5])
    got = generalised_advantages(np.array([1, 2, 3]), values, np.array([3]), gamma=gamma, lam=lam)
    assert (got + values).tolist() == close(*returns)
    if (gamma, lam) == (1, 1):
        white = whitened(got.astype(np.float32), np.array([True, False, True]))
        assert white.tolist() == close(0.7071, 0.1768, -0.7071)


def test_22_importance_weights_of_tokens_and_sequences() -> None:
    old, sampler = [-1.0, -1.5, -0.5], [-1.5, -1.0, -1.5]
    assert truncated()(corrected(old, sampler)).weights.tolist() == close(1.6487, 0.6065, 2.0)
    whole = truncated(WeightLevel.sequence, high=100.0)
    assert whole(corrected(old, sampler)).weights.tolist() == close(2.7183, 2.7183, 2.7183)
    assert whole(corrected(old, sampler, [1, 0, 1])).weights[0].item() == pytest.approx(4.4817, abs=1e-4)
    capped = truncated(WeightLevel.sequence, high=5.0)(corrected([0.0, 0.0, 0.0], [-1.0, -1.0, -1.0]))
    assert capped.weights.tolist() == close(5, 5, 5)


def test_23_the_token_sum_adds_up_over_micro_batches_and_copies() -> None:
    loss = np.array([0, 1, 2, 30, 0, 4, 50, 6], dtype=np.float32)
    two = batch([(0, [0, 1, 1, 0]), (1, [0, 1, 0, 1])], rewards=[0, 0])
    weights = TokenSum(constant=1.0, per_rollout=False)(two)
    assert float((weights * loss).sum()) == 13
    assert float((weights * loss)[:4].sum()) + float((weights * loss)[4:].sum()) == 13
    # averaged over 4 copies, as other trainers do, it would have to be multiplied by 4: 52. Ours adds gradients up
    assert 4 * float((weights * loss).sum()) == 52


def test_24_the_adaptive_coefficient() -> None:
    # the error is bounded to 0.2: 0.2 * (1 + 0.2 * 10 / 100)
    assert adapted(0.2, 0.2, target=0.1, horizon=100, rollouts=10) == pytest.approx(0.2 * 1.02)
    assert adapted(0.2, 0.0, target=0.1, horizon=100, rollouts=10) == pytest.approx(0.2 * 0.98)
    assert adapted(0.2, 0.11, target=0.1, horizon=100, rollouts=10) == pytest.approx(0.2 * 1.01)


def test_25_dppo_drops_a_token_that_would_move_further() -> None:
    dppo = DppoLoss(divergence=Divergence.tv, limit_low=0.15, limit_high=0.15, tau=0.1)
    p = torch.tensor([0.7, 0.7, 0.3, 0.3, 0.03]).log()
    q = torch.tensor([0.5, 0.5, 0.5, 0.5, 0.01]).log()
    terms = dppo(loss_input(p, q, [1.0, -1.0, -1.0, 1.0, 1.0]))
    assert terms.metrics["clip_fraction"].tolist() == [True, False, True, False, False]
    up, down, rare = 0.1 * math.log(1.4) ** 2, 0.1 * math.log(0.6) ** 2, 0.1 * math.log(3.0) ** 2
    assert terms.loss.tolist() == close(up, 1.4 + up, down, -0.6 + down, -3 + rare)


def test_26_decoupled_ppo_keeps_the_denominator_when_it_rejects() -> None:
    one = batch([(0, [0, 1, 1, 1]), (1, [0, 1])], rewards=[1, 0])
    sampler = np.array([0, -0.5, -3.5, -0.8, 0, -1.0], dtype=np.float32)
    old = np.array([0, -1, -1, -1, 0, -1], dtype=np.float32)
    scored = replace(one, rollout_logprobs=sampler, scores=Scores(old_logprobs=old))
    bundle = algorithm(correction=DecoupledConfig())
    ready = bundle.prepared(scored)
    assert ready.correction is not None
    assert ready.correction[one.loss_mask].tolist() == close(0.6065, 0, 0.8187, 1)
    assert bundle.weights(scored)[one.loss_mask].tolist() == close(0.25, 0.25, 0.25, 0.25)
    assert bundle.weights(scored).tolist() == algorithm(correction=IcePopConfig()).weights(one).tolist()


def test_27_the_approximated_proximal_policy_lies_between_in_the_log() -> None:
    # sampled with version 3, trainer at 5, the update leads to 6: a = 2 / 3; fresh: a = 0
    got = approximated(torch.tensor([-1.0, -1.0]), torch.tensor([-4.0, -4.0]), torch.tensor([2, 0]))
    assert got.tolist() == close(-2, -4)


def test_28_the_overlong_penalty() -> None:
    got = overlong_penalty(np.array([70, 80, 90, 100, 110], dtype=np.int32), limit=100, buffer=20, factor=1.0)
    assert got.tolist() == close(0, 0, -0.5, -1, -1.5)


def test_29_the_rollout_mean_divides_by_the_rollouts_tokens_and_by_the_rollouts() -> None:
    # 4 tokens in two segments and 1 in one: 1 / (4 * 2) and 1 / (1 * 2)
    got = RolloutMean()(batch([(0, [0, 1, 1]), (0, [0, 1, 1]), (1, [0, 1])], rewards=[1, 0]))
    assert got.tolist() == close(0, 0.125, 0.125, 0, 0.125, 0.125, 0, 0.5)


def test_30_the_chunked_sum_equals_the_serial_one() -> None:
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
        for chunk in (2, 3, 64):
            np.testing.assert_allclose(discounted_sums(values, lengths, discount, chunk), expected, atol=1e-10)

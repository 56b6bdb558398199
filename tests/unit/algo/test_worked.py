"""Three and more cases worked by hand for every formula; each line is its own derivation."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from algo_cases import algorithm, batch, loss_input

from rl_agent.algo.advantage.maxrl import by_pass_rate
from rl_agent.algo.advantage.opo import length_weighted
from rl_agent.algo.advantage.pass_at_k import pass_at_k
from rl_agent.algo.advantage.remax import against_greedy
from rl_agent.algo.advantage.rloo import leave_one_out
from rl_agent.algo.aggregation.sequence_mean import SequenceMean
from rl_agent.algo.aggregation.token_sum import TokenSum
from rl_agent.algo.base import CorrectionInput, LossInput
from rl_agent.algo.batch import RolloutFacts
from rl_agent.algo.correction.rejection import Rejection
from rl_agent.algo.loss.clip_cov import ClipCovLoss
from rl_agent.algo.loss.covariance import covariances
from rl_agent.algo.loss.distillation import DistillationLoss
from rl_agent.algo.loss.dppo import DppoLoss
from rl_agent.algo.loss.geometric_mean import GeometricMeanLoss
from rl_agent.algo.loss.gspo import GspoLoss
from rl_agent.algo.loss.kl_cov import KlCovLoss
from rl_agent.algo.loss.sapo import SapoLoss
from rl_agent.algo.scores import Need, Scores
from rl_agent.algo.shaping.length import length_rewards
from rl_agent.algo.shaping.shares import share_penalty
from rl_agent.algo.shaping.zero_variance import has_variance
from rl_agent.config.algo import (
    GaeAdvantageConfig,
    GrpoAdvantageConfig,
    ReinforcePlusPlusAdvantageConfig,
    RemaxAdvantageConfig,
)
from rl_agent.config.algo_loss import Divergence, RatioLevel, ReinforceLossConfig
from rl_agent.config.algo_parts import (
    Gathered,
    KlEstimator,
    KlPenaltyConfig,
    KlPlace,
    Proximal,
    ShapingConfig,
    TruncatedConfig,
)
from rl_agent.errors import ConfigError, LawError


def f32(*values: float) -> Any:
    return np.array(values, dtype=np.float32)


def i32(*values: int) -> Any:
    return np.array(values, dtype=np.int32)


def close(*expected: float) -> Any:
    return pytest.approx(list(expected), abs=1e-4)


def test_rloo() -> None:
    assert leave_one_out(f32(1, 0, 0), i32(0, 0, 0)).tolist() == close(1, -0.5, -0.5)
    assert leave_one_out(f32(1, 1, 1), i32(0, 0, 0)).tolist() == close(0, 0, 0)
    assert leave_one_out(f32(4, 1, 2), i32(0, 1, 0)).tolist() == close(2, 0, -2)


def test_maxrl() -> None:
    assert by_pass_rate(f32(1, 0, 0, 0), i32(0, 0, 0, 0), epsilon=0.0).tolist() == close(3, -1, -1, -1)
    assert by_pass_rate(f32(0, 0), i32(0, 0), epsilon=0.0).tolist() == close(0, 0)
    assert by_pass_rate(f32(1, 0, 1), i32(0, 0, 1), epsilon=0.0).tolist() == close(1, -1, 0)
    assert by_pass_rate(f32(-1, 0), i32(0, 0), epsilon=0.0).tolist() == close(0, 0)  # no pass rate


def test_opo() -> None:
    assert length_weighted(f32(1, 0), i32(0, 0), i32(30, 10)).tolist() == close(0.25, -0.75)
    assert length_weighted(f32(1, 0), i32(0, 0), i32(10, 10)).tolist() == close(0.5, -0.5)
    assert length_weighted(f32(1, 0, 5), i32(0, 0, 1), i32(1, 4, 9)).tolist() == close(0.8, -0.2, 0)


def test_pass_at_k() -> None:
    # n = 4, m = 2, k = 2: R = 5/6, s = 0.37268; n = 4, m = 3, k = 2: R = 1/2, failure: (1/2 - 2/3) / 0.5
    assert pass_at_k(f32(1, 1, 0, 0), i32(0, 0, 0, 0), k=2, success=1.0).tolist() == close(
        0.4472, 0.4472, -0.4472, -0.4472
    )
    assert pass_at_k(f32(1, 0, 0, 0), i32(0, 0, 0, 0), k=2, success=1.0).tolist() == close(1, -1 / 3, -1 / 3, -1 / 3)
    # k = 1: (r - 1/2) / 1/2; too few failures, no success, a group smaller than k: nothing
    assert pass_at_k(f32(1, 0), i32(0, 0), k=1, success=1.0).tolist() == close(1, -1)
    assert pass_at_k(f32(1, 1, 0), i32(0, 0, 0), k=2, success=1.0).tolist() == close(0, 0, 0)
    assert pass_at_k(f32(0, 0), i32(0, 0), k=2, success=1.0).tolist() == close(0, 0)
    assert pass_at_k(f32(1, 0), i32(0, 0), k=4, success=1.0).tolist() == close(0, 0)


def test_remax() -> None:
    greedy = np.array([False, False, True])
    assert against_greedy(f32(1, 0, 1), i32(0, 0, 0), greedy).tolist() == close(0, -1, 0)
    assert against_greedy(f32(1, 0, 0), i32(0, 0, 0), greedy).tolist() == close(1, 0, 0)
    assert against_greedy(f32(1, 0, 0), i32(0, 0, 1), greedy).tolist() == close(0, 0, 0)  # its greedy one is missing
    with pytest.raises(LawError, match="greedy"):
        algorithm(advantage=RemaxAdvantageConfig()).advantages(batch([(0, [0, 1])], rewards=[1]))


def test_reinforce_plus_plus() -> None:
    two = batch([(0, [0, 1, 0, 1]), (1, [0, 1])], rewards=[1, 0])
    plain = algorithm(advantage=ReinforcePlusPlusAdvantageConfig(gamma=0.5, whiten=False))
    assert plain.advantages(two).tolist() == close(0, 0.5, 0, 1, 0, 0)  # context is no time
    # returns 1, 1, 0: mean 2/3, deviation 0.57735
    white = algorithm(advantage=ReinforcePlusPlusAdvantageConfig())
    assert white.advantages(two).tolist() == close(0, 0.5774, 0, 0.5774, 0, -1.1547)
    # with the group's mean off first, 0.5, 0.5, -0.5: the same after whitening
    based = algorithm(advantage=ReinforcePlusPlusAdvantageConfig(baseline=True))
    assert based.advantages(two).tolist() == close(0, 0.5774, 0, 0.5774, 0, -1.1547)
    # a rollout's later segment comes later: 1 at the end of the second
    cut = batch([(0, [0, 1]), (0, [0, 1])], rewards=[1])
    assert plain.advantages(cut).tolist() == close(0, 0.5, 0, 1)


def test_gae_over_the_policys_own_tokens() -> None:
    one = batch([(0, [0, 1, 0, 1]), (1, [0, 1])], rewards=[1, 0])
    scored = dataclasses.replace(one, scores=Scores(values=f32(9, 0.5, 9, 0.25, 9, 0.5)))
    bundle = algorithm(advantage=GaeAdvantageConfig(lam=1.0, whiten=False))
    assert bundle.advantages(scored).tolist() == close(0, 0.5, 0, 0.75, 0, -0.5)
    assert bundle.critic is not None
    assert bundle.critic.with_targets(scored)[1][one.loss_mask].tolist() == close(1, 1, 0)
    # lambda 0: 0 + 0.25 - 0.5; 1 - 0.25; 0 - 0.5
    short = algorithm(advantage=GaeAdvantageConfig(lam=0.0, whiten=False))
    assert short.advantages(scored).tolist() == close(0, -0.25, 0, 0.75, 0, -0.5)
    with pytest.raises(LawError, match="values"):
        bundle.advantages(one)


def test_whitening_is_an_option_of_every_estimator() -> None:
    # 0.5, 0.5, 0.5, -0.5 over trained tokens: mean 0.25, deviation 0.5
    uneven = batch([(0, [0, 1, 1, 1]), (1, [0, 1])], rewards=[1, 0])
    white = algorithm(advantage=GrpoAdvantageConfig(divide_by_std=False, whiten=True)).advantages(uneven)
    assert white.tolist() == close(0.5, 0.5, 0.5, 0.5, -1.5, -1.5)


def test_sequence_mean_and_token_sum() -> None:
    three = batch([(0, [0, 1, 1, 1]), (0, [0, 1]), (1, [0, 0])], rewards=[1, 0])
    assert SequenceMean()(three).tolist() == close(0, 1 / 6, 1 / 6, 1 / 6, 0, 1 / 2, 0, 0)
    assert TokenSum(constant=8.0, per_rollout=False)(three).tolist() == close(0, *[1 / 8] * 3, 0, 1 / 8, 0, 0)
    assert TokenSum(constant=8.0, per_rollout=True)(three).tolist() == close(0, *[1 / 8] * 3, 0, 1 / 8, 0, 0)
    two = batch([(0, [0, 1]), (1, [0, 1])], rewards=[1, 0])
    assert TokenSum(constant=8.0, per_rollout=True)(two).tolist() == close(0, 1 / 16, 0, 1 / 16)
    with pytest.raises(ConfigError, match="constant"):
        TokenSum(constant=0.0, per_rollout=True)


def inputs(ratios: list[float], advantages: list[float], **more: Any) -> LossInput:
    logprobs = [math.log(0.5)] * len(ratios)
    old = [p - math.log(r) for p, r in zip(logprobs, ratios, strict=True)]
    return dataclasses.replace(loss_input(logprobs, old, advantages), **more)


def test_sapo() -> None:
    sapo = SapoLoss(tau_good=1.0, tau_bad=1.05)
    # sigmoid(0) = 0.5, sigmoid(1) = 0.73106; -(-1) * 4 / 1.05 * sigmoid(1.05)
    terms = sapo(inputs([1, 2, 2, 1], [1, 1, -1, -1]))
    assert terms.loss.tolist() == close(-2, -2.9242, 4 / 1.05 * 0.740775, 2 / 1.05)
    assert terms.metrics["gate"].tolist() == close(1, 0.7864, 4 * 0.740775 * 0.259225, 1)


def test_gspo_of_tokens_has_the_value_of_the_sequence_and_a_gradient_of_each_token() -> None:
    current = torch.tensor([-1.0, -2.0], requires_grad=True)
    gspo = GspoLoss(clip_low=0.2, clip_high=0.2, level=RatioLevel.token)
    terms = gspo(loss_input(current, [-1.1, -2.1], [1.0, 3.0]))  # s = e^0.1
    assert terms.loss.tolist() == close(-1.1052, -3.3155)
    terms.loss.sum().backward()
    assert current.grad is not None
    assert current.grad.tolist() == close(-1.1052, -3.3155)


def test_geometric_mean() -> None:
    gmpo = GeometricMeanLoss(clip_low=0.4, clip_high=0.4)
    # logs -0.6931, 0, 1 bounded above at 0.4: mean -0.0977
    assert gmpo(inputs([0.5, 1, math.e], [1, 1, 1])).loss.tolist() == close(*[-0.9069] * 3)
    # with A < 0 bounded below at -0.4: mean 0.2
    assert gmpo(inputs([0.5, 1, math.e], [-1, -1, -1])).loss.tolist() == close(*[math.exp(0.2)] * 3)
    assert gmpo(inputs([1, 1], [2, 2])).loss.tolist() == close(-2, -2)


def test_dppo_by_the_divergence() -> None:
    dppo = DppoLoss(divergence=Divergence.kl, limit_low=0.05, limit_high=0.05, tau=0.0)
    # p = 0.5 in all: q = 0.25: 0.25 ln 0.5 + 0.75 ln 1.5 = 0.1308; q = 0.4: 0.0201; q = 0.75: 0.1308
    terms = dppo(inputs([2, 1.25, 2 / 3, 2 / 3], [1, 1, -1, 1]))
    assert terms.metrics["clip_fraction"].tolist() == [True, False, True, False]
    assert terms.loss.tolist() == close(0, -1.25, 0, -2 / 3)


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
    assert KlCovLoss(share=0.25, coefficient=1.0).marks(told, uneven).tolist() == [False, True, False, False, False]
    assert KlCovLoss(share=0.5, coefficient=1.0).marks(told, uneven).tolist() == [False, True, False, False, True]
    drawn = ClipCovLoss(clip_low=0.2, clip_high=0.2, share=0.25, covariance_low=1.0, covariance_high=5.0)
    assert drawn.marks(told, uneven).sum() == 1
    assert drawn.marks(told, uneven)[[1, 4]].any()
    nothing = ClipCovLoss(clip_low=0.2, clip_high=0.2, share=0.25, covariance_low=3.0, covariance_high=5.0)
    assert not nothing.marks(told, uneven).any()


def test_kl_cov_and_clip_cov_treat_marked_tokens_differently() -> None:
    marked = torch.tensor([False, True])
    assert KlCovLoss(share=0.5, coefficient=2.0)(inputs([2, 2], [1, 1], marked=marked)).loss.tolist() == close(
        -2, -2 + 2 * 0.6931
    )
    current = torch.tensor([-1.0, -1.0], requires_grad=True)
    cov = ClipCovLoss(clip_low=0.2, clip_high=0.2, share=0.5, covariance_low=1.0, covariance_high=5.0)
    terms = cov(dataclasses.replace(loss_input(current, [-1.0, -1.0], [1.0, 1.0]), marked=marked))
    terms.loss.sum().backward()
    assert terms.loss.tolist() == close(-1, -1)
    assert current.grad is not None
    assert current.grad.tolist() == close(-1, 0)


def test_distillation() -> None:
    learn = DistillationLoss(teacher="t", coefficient=1.0, reward_weight=0.0)
    both = DistillationLoss(teacher="t", coefficient=0.5, reward_weight=2.0)
    base = loss_input([-2.0, -1.0, -1.0], [-2.0, -1.0, -1.0 - math.log(2)], [1.0, 1.0, 1.0])
    told = dataclasses.replace(base, teacher_logprobs=torch.tensor([-1.0, -1.0, -3.0]))
    terms = learn(told)
    assert terms.loss.tolist() == close(-1, 0, 4)  # gaps 1, 0, -2; ratios 1, 1, 2
    assert terms.metrics["teacher_kl"].tolist() == close(-1, 0, 2)
    assert both(told).loss.tolist() == close(-2.5, -2, -2)
    with pytest.raises(LawError, match="teacher"):
        learn(base)


REJECTIONS = [
    # log weights 0.5 and -0.5 of one sequence, 0.1 of another
    (KlEstimator.k1, Gathered.token, -0.3, 0.3, [0, 0, 1]),
    (KlEstimator.k1, Gathered.sum, -0.05, 0.05, [1, 1, 0]),
    (KlEstimator.k1, Gathered.mean, -0.05, 0.2, [1, 1, 0]),
    (KlEstimator.k2, Gathered.max, None, 0.1, [0, 0, 1]),  # 0.125 and 0.125; 0.005
    (KlEstimator.k3, Gathered.token, None, 0.12, [0, 1, 1]),  # 0.1487 and 0.1065; 0.0052
    (KlEstimator.k3, Gathered.mean, None, 0.13, [1, 1, 1]),  # 0.1276
    (KlEstimator.absolute, Gathered.token, None, None, [1, 1, 1]),
]


def test_rejection() -> None:
    weights = CorrectionInput(
        log_weights=torch.tensor([0.5, -0.5, 0.1]),
        loss_mask=torch.ones(3, dtype=torch.bool),
        sequence=torch.tensor([0, 0, 1]),
    )
    for estimator, gathered, low, high, kept in REJECTIONS:
        part = Rejection(
            proximal=Proximal.recomputed, estimator=estimator, gathered=gathered, low=low, high=high, weighted=False
        )
        terms = part(weights)
        assert terms.weights.tolist() == kept, (estimator, gathered)
        assert terms.corrected.tolist() == [not k for k in kept]


def facts(count: int, **changes: Any) -> RolloutFacts:
    zeros, no = np.zeros(count, dtype=np.int32), np.zeros(count, dtype=np.bool_)
    values = {
        "truncated": no,
        "greedy": no,
        "turns": zeros,
        "ill_formed": zeros,
        "tool_calls": zeros,
        "tool_errors": zeros,
    }
    return RolloutFacts(**(values | changes))


def test_shaping_formulas() -> None:
    assert share_penalty(i32(1, 0, 3), i32(4, 0, 2), 0.2).tolist() == close(-0.05, 0, -0.2)
    solved = np.array([True, True, False, True])
    assert length_rewards(i32(10, 20, 30, 5), i32(0, 0, 0, 1), solved).tolist() == close(0.5, 0, -0.5, 0)
    assert length_rewards(i32(10, 30), i32(0, 0), np.array([False, True])).tolist() == close(0, -0.5)
    assert length_rewards(i32(10, 10), i32(0, 0), np.array([True, True])).tolist() == close(0, 0)
    assert has_variance(f32(1, 1, 1, 0, 0), i32(0, 0, 1, 1, 2)).tolist() == [False, False, True, True, False]


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
    penalised = algorithm(shaping=ShapingConfig(format_penalty=0.2, tool_error_penalty=0.4)).shaped(told)
    assert penalised.batch.rewards.tolist() == close(1 - 0.1 - 0.1, 0, 1, 0.6)
    assert penalised.metrics["shaping/format"] == pytest.approx(-0.025)
    overlong = algorithm(shaping=ShapingConfig(overlong_penalty=1.0, overlong_limit=4, overlong_buffer=0.5))
    assert overlong.shaped(told).batch.rewards.tolist() == close(0.5, -0.5, 0.5, 0.5)  # segments of 3 of 4, buffer 2
    # by what was graded, group 1 is equal, whatever was added
    filtered = algorithm(shaping=ShapingConfig(tool_error_penalty=0.4, drop_zero_variance=True)).shaped(told)
    assert filtered.batch.rewards.tolist() == close(0.9, 0)
    assert filtered.metrics["shaping/dropped_zero_variance"] == 2
    cut = algorithm(shaping=ShapingConfig(drop_truncated=True)).shaped(told)
    assert cut.batch.rewards.tolist() == [1, 1, 1]
    assert cut.batch.tokens.shape == (9,)
    assert algorithm().shaped(told).batch is told
    with pytest.raises(LawError, match="drop_truncated"):
        algorithm(shaping=ShapingConfig(drop_truncated=True)).shaped(four)


def test_a_group_whose_greedy_baseline_was_left_out_teaches_nothing() -> None:
    four = batch([(i, [0, 1]) for i in range(4)], rewards=[1, 0, 1, 0], groups=[0, 0, 1, 1])
    greedy, cut = np.array([False, True, False, True]), np.array([False, True, False, False])
    told = dataclasses.replace(four, facts=facts(4, greedy=greedy, truncated=cut))
    remax = RemaxAdvantageConfig(whiten=False)
    assert algorithm(advantage=remax).advantages(told).tolist() == [1, 1, 0, 0, 1, 1, 0, 0]
    bundle = algorithm(advantage=remax, shaping=ShapingConfig(drop_truncated=True))
    left = bundle.shaped(told).batch
    assert left.rollout_group.tolist() == [0, 1, 1]
    assert bundle.advantages(left).tolist() == [0, 0, 1, 1, 0, 0]


def test_kl_in_the_reward_reaches_every_estimator() -> None:
    two = batch([(0, [0, 1, 1]), (1, [0, 1])], rewards=[1, 0])
    told = dataclasses.replace(
        two,
        rollout_logprobs=f32(0, -1, -1, 0, -1),
        scores=Scores(reference_logprobs=f32(0, -1.5, -2, 0, -0.5)),
    )
    penalty = KlPenaltyConfig(place=KlPlace.reward, estimator=KlEstimator.k1, coefficient=0.1)
    # k1: 0.5, 1 | -0.5; rewards 1 - 0.15 and 0 + 0.05: apart by 0.8
    bundle = algorithm(advantage=GrpoAdvantageConfig(divide_by_std=False), kl=penalty)
    ready = bundle.prepared(told)
    assert ready.advantages.tolist() == close(0.4, 0.4, 0.4, -0.4, -0.4)
    assert ready.kl == pytest.approx(1 / 3)
    # token by token: returns 1 - 0.15, 1 - 0.1 | 0.05
    returns = algorithm(advantage=ReinforcePlusPlusAdvantageConfig(whiten=False), kl=penalty).prepared(told)
    assert returns.advantages.tolist() == close(0, 0.85, 0.9, 0, 0.05)
    assert bundle.needs == {Need.REFERENCE_LOGPROBS}


def test_kl_in_the_loss_is_added_with_its_coefficient() -> None:
    bundle = algorithm(kl=KlPenaltyConfig(estimator=KlEstimator.k2, coefficient=0.5), loss=ReinforceLossConfig())
    told = dataclasses.replace(
        loss_input([-1.0, -2.0], [-1.0, -2.0], [1.0, 0.0]),
        reference_logprobs=torch.tensor([-3.0, -2.0]),
        kl_coefficient=0.5,
    )
    terms = bundle.token_loss(told)
    assert terms.loss.tolist() == close(1 + 0.5 * 2, 0)
    assert terms.metrics["reference_kl"].tolist() == close(2, 0)
    assert bundle.trains_without_advantage


def test_a_correction_against_the_current_policy_weighs_tokens_of_a_loss_without_a_ratio() -> None:
    correction = TruncatedConfig(proximal=Proximal.current, high=2.0)
    bundle = algorithm(loss=ReinforceLossConfig(), correction=correction)
    terms = bundle.token_loss(loss_input([-1.0, -1.0], [-1.5, -3.0], [1.0, 1.0]))
    assert terms.loss.tolist() == close(math.exp(0.5), 2)  # e^2 is capped
    assert terms.metrics["correction/changed"].tolist() == [False, True]
    assert bundle.needs == frozenset()

"""Corrections and the proximal policy."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from algo_cases import CURRENT, OLD, SAMPLER, A, algorithm, batch, close, corrected, loss_input

from rl_agent.algo.base import CorrectionInput
from rl_agent.algo.correction.decoupled import DecoupledConfig
from rl_agent.algo.correction.icepop import IcePopConfig
from rl_agent.algo.correction.masked import MaskedConfig
from rl_agent.algo.correction.none import NoCorrectionConfig
from rl_agent.algo.correction.rejection import Gathered, RejectionConfig
from rl_agent.algo.correction.truncated import Truncated, TruncatedConfig
from rl_agent.algo.divergence import KlEstimator
from rl_agent.algo.loss.gspo import GspoConfig, RatioLevel
from rl_agent.algo.loss.ppo_clip import PpoClipConfig
from rl_agent.algo.loss.reinforce import ReinforceConfig
from rl_agent.algo.ratio import WeightLevel, approximated, at_level
from rl_agent.algo.scores import Scores
from rl_agent.config.algo import Proximal


def truncated(level: WeightLevel = WeightLevel.token, low: float = 0.0, high: float = 2.0) -> Truncated:
    return TruncatedConfig(level=level, low=low, high=high).build()


def test_the_ratio_is_one_where_the_current_policy_is_the_proximal_one() -> None:
    bundle = algorithm(correction=NoCorrectionConfig(proximal=Proximal.current))
    terms = bundle.token_loss(loss_input(CURRENT, [-10.0, -10.0, -10.0], A))
    assert terms.loss.tolist() == close(-1, 1, -2)
    assert float(terms.loss.mean()) == pytest.approx(-0.6667, abs=1e-4)
    assert terms.metrics["ratio"].tolist() == [1, 1, 1]


def test_importance_weighted_ppo() -> None:
    # weights e^-0.5, e^0.5, e^-0.2 times -0.5, 1, -2.4
    weights = DecoupledConfig(cap=None).build()(corrected(OLD, SAMPLER)).weights
    assert weights.tolist() == close(0.6065, 1.6487, 0.8187)
    loss = weights * PpoClipConfig(clip_low=0.2, clip_high=0.2).build()(loss_input(CURRENT, OLD, A)).loss
    assert loss.tolist() == close(-0.30327, 1.6487, -1.96495)
    assert float(loss.mean()) == pytest.approx(-0.2065, abs=1e-4)


def test_truncated_importance_sampling_of_tokens_and_of_the_sequence() -> None:
    of_tokens = (
        truncated(high=0.8)(corrected(OLD, SAMPLER)).weights
        * PpoClipConfig(clip_low=0.2, clip_high=0.2).build()(loss_input(CURRENT, OLD, A)).loss
    )
    assert of_tokens.tolist() == close(-0.3033, 0.8, -1.92)
    assert float(of_tokens.mean()) == pytest.approx(-0.4744, abs=1e-4)
    # the sequence's weight is e^(-0.5 + 0.5 - 0.2) = 0.8187, capped; its ratio 0.75^(1/3) = 0.9086
    gspo = GspoConfig(clip_low=0.2, clip_high=0.2, level=RatioLevel.sequence).build()
    weights = truncated(WeightLevel.sequence, high=0.8)(corrected(OLD, SAMPLER)).weights
    of_sequence = weights * gspo(loss_input(CURRENT, OLD, A)).loss
    assert of_sequence.tolist() == close(-0.7268, 0.7268, -1.4537)
    assert float(of_sequence.mean()) == pytest.approx(-0.4846, abs=1e-4)


def test_truncation_counts_what_it_bounds_on_either_side() -> None:
    logs = corrected([math.log(0.1), 0.0, math.log(3.0)], [0.0, 0.0, 0.0])
    above = truncated()(logs)
    assert above.weights.tolist() == close(0.1, 1, 2)
    assert float(above.corrected.float().mean()) == pytest.approx(1 / 3)
    both = truncated(low=0.5)(logs)
    assert both.weights.tolist() == close(0.5, 1, 2)
    assert float(both.corrected.float().mean()) == pytest.approx(2 / 3)
    assert float(-both.weights.mean()) == pytest.approx(-3.5 / 3)  # the loss of A = 1 at a ratio of 1


def test_icepop_rejects_weights_beyond_its_bounds() -> None:
    # e^-0.5, e^2.5 = 12.182, e^-0.2 within 0.5 and 5
    terms = IcePopConfig(low=0.5, high=5.0).build()(corrected(OLD, [-0.5, -3.5, -0.8]))
    assert terms.weights.tolist() == close(0.6065, 0, 0.8187)
    loss = terms.weights * -torch.tensor(A)
    assert float(loss.mean()) == pytest.approx((-0.6065 - 2 * 0.8187) / 3, abs=1e-4)


def test_masked_importance_sampling_keeps_a_sequence_by_its_geometric_mean() -> None:
    masked = MaskedConfig(level=WeightLevel.geometric, low=0.999, high=1.002, weighted=True).build()
    assert masked(corrected(OLD, [-1.0005] * 3)).weights.tolist() == close(1.0005, 1.0005, 1.0005)
    assert masked(corrected(OLD, [-1.003] * 3)).weights.tolist() == [0, 0, 0]
    impossible = masked(corrected(OLD, [-1.0, -1.0, -math.inf]))
    assert impossible.weights.tolist() == [0, 0, 0]


def test_importance_weights_of_tokens_and_sequences() -> None:
    old, sampler = [-1.0, -1.5, -0.5], [-1.5, -1.0, -1.5]
    assert truncated()(corrected(old, sampler)).weights.tolist() == close(1.6487, 0.6065, 2.0)
    whole = truncated(WeightLevel.sequence, high=100.0)
    assert whole(corrected(old, sampler)).weights.tolist() == close(2.7183, 2.7183, 2.7183)
    assert whole(corrected(old, sampler, [1, 0, 1])).weights[0].item() == pytest.approx(4.4817, abs=1e-4)
    capped = truncated(WeightLevel.sequence, high=5.0)(corrected([0.0, 0.0, 0.0], [-1.0, -1.0, -1.0]))
    assert capped.weights.tolist() == close(5, 5, 5)


def test_decoupled_ppo_keeps_the_denominator_when_it_rejects() -> None:
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
        part = RejectionConfig(estimator=estimator, gathered=gathered, low=low, high=high, weighted=False).build()
        terms = part(weights)
        assert terms.weights.tolist() == kept, (estimator, gathered)
        assert terms.corrected.tolist() == [not k for k in kept]


def pairs(*log_weights: float) -> CorrectionInput:
    """Sequences of two tokens."""
    count = len(log_weights)
    return CorrectionInput(
        log_weights=torch.tensor(log_weights),
        loss_mask=torch.ones(count, dtype=torch.bool),
        sequence=torch.arange(count) // 2,
    )


def test_the_level_of_an_importance_weight() -> None:
    inputs = pairs(1.0, 2.0, -1.0, 0.0)
    assert at_level(inputs, WeightLevel.token).tolist() == [1, 2, -1, 0]
    assert at_level(inputs, WeightLevel.sequence).tolist() == [3, 3, -1, -1]
    assert at_level(inputs, WeightLevel.geometric).tolist() == [1.5, 1.5, -0.5, -0.5]
    assert at_level(pairs(15.0, 15.0), WeightLevel.sequence).tolist() == [20, 20]


def test_corrections_of_pairs() -> None:
    half, one, two = math.log(0.5), 0.0, math.log(2.0)
    none = NoCorrectionConfig().build()(pairs(half, two, one))
    assert none.weights.tolist() == [1, 1, 1]
    assert not none.corrected.any()
    pop = IcePopConfig(low=0.6, high=1.8).build()(pairs(half, two, one))
    assert pop.weights.tolist() == close(0, 0, 1)
    capped = DecoupledConfig(cap=1.5).build()(pairs(half, two, one))
    assert capped.weights.tolist() == close(0.5, 0, 1)
    # by the product: 0.5 * 2 = 1 is kept whole, 2 * 2 = 4 is not, 0.5 * 0.5 = 0.25 is not
    masked = MaskedConfig(level=WeightLevel.sequence, low=0.5, high=2.0, weighted=True).build()
    assert masked(pairs(half, two, two, two, half, half)).weights.tolist() == close(0.5, 2, 0, 0, 0, 0)
    plain = MaskedConfig(level=WeightLevel.sequence, low=0.5, high=2.0, weighted=False).build()
    assert plain(pairs(half, two, two, two)).weights.tolist() == [1, 1, 0, 0]


def test_a_correction_against_the_current_policy_weighs_tokens_of_a_loss_without_a_ratio() -> None:
    correction = TruncatedConfig(proximal=Proximal.current, high=2.0)
    bundle = algorithm(loss=ReinforceConfig(), correction=correction)
    terms = bundle.token_loss(loss_input([-1.0, -1.0], [-1.5, -3.0], [1.0, 1.0]))
    assert terms.loss.tolist() == close(math.exp(0.5), 2)  # e^2 is capped
    assert terms.metrics["correction/changed"].tolist() == [False, True]
    assert bundle.config.needs == frozenset()


def test_the_approximated_proximal_policy_lies_between_in_the_log() -> None:
    # sampled with version 3, trainer at 5, the update leads to 6: a = 2 / 3; fresh: a = 0
    got = approximated(torch.tensor([-1.0, -1.0]), torch.tensor([-4.0, -4.0]), torch.tensor([2, 0]))
    assert got.tolist() == close(-2, -4)


def test_the_approximated_proximal_policy() -> None:
    # between -3 and -1: lag 0: -3; lag 1: half way; lag 3: three quarters; without a version: as if fresh
    got = approximated(torch.full((4,), -1.0), torch.full((4,), -3.0), torch.tensor([0, 1, 3, -1]))
    assert got.tolist() == close(-3, -2, -1.5, -3)

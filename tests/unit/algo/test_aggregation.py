"""How much each token counts."""

from __future__ import annotations

import numpy as np
import pytest
from algo_cases import batch

from rl_agent.algo.aggregation.context_mean import ContextMean
from rl_agent.algo.aggregation.rollout_mean import RolloutMean
from rl_agent.algo.aggregation.sequence_mean import SequenceMean
from rl_agent.algo.aggregation.token_mean import TokenMean
from rl_agent.algo.aggregation.token_sum import TokenSum

TWO = batch([(0, [0, 1, 1, 1]), (1, [0, 0, 1])], rewards=[1, 0])


def test_token_mean_gives_every_trained_token_the_same() -> None:
    assert TokenMean()(TWO).tolist() == [0, 0.25, 0.25, 0.25, 0, 0, 0.25]


def test_rollout_mean_gives_every_rollout_the_same() -> None:
    sixth = pytest.approx(1 / 6)
    assert RolloutMean()(TWO).tolist() == [0, sixth, sixth, sixth, 0, 0, 0.5]


def test_rollout_mean_does_not_change_when_a_rollout_is_cut_into_more_segments() -> None:
    cut = batch([(0, [0, 1]), (0, [0, 1, 1]), (1, [0, 0, 1])], rewards=[1, 0])
    sixth = pytest.approx(1 / 6)
    assert RolloutMean()(cut).tolist() == [0, sixth, 0, sixth, sixth, 0, 0, 0.5]


def test_rollout_mean_does_not_count_rollouts_without_a_trained_token() -> None:
    idle = batch([(0, [0, 1]), (1, [0, 0]), (2, [0, 1])], rewards=[1, 0, 0])
    assert RolloutMean()(idle).tolist() == [0, 0.5, 0, 0, 0, 0.5]


def test_context_mean_counts_the_tokens_around_a_little_and_first_tokens_never() -> None:
    # 4 trained tokens and 1 other that something predicts: 1 / 4.1 and 0.1 / 4.1
    one, little = pytest.approx(1 / 4.1), pytest.approx(0.1 / 4.1)
    assert ContextMean(context_weight=0.1)(TWO).tolist() == [0, one, one, one, 0, little, one]


def test_sums_and_means_by_hand() -> None:
    # segments of 2 and 1 trained tokens of one rollout, 1 of another
    cut = batch([(0, [0, 1, 1]), (0, [0, 1]), (1, [0, 1, 0])], rewards=[1, 0])
    third, sixth = pytest.approx(1 / 3), pytest.approx(1 / 6)
    assert TokenMean()(cut).tolist() == [0, 0.25, 0.25, 0, 0.25, 0, 0.25, 0]
    assert SequenceMean()(cut).tolist() == [0, sixth, sixth, 0, third, 0, third, 0]
    assert RolloutMean()(cut).tolist() == [0, sixth, sixth, 0, sixth, 0, 0.5, 0]
    # 4 trained tokens and 1 other that something predicts: 1 / 4.5 and 0.5 / 4.5; with weight 0 it is the token mean
    one, half = pytest.approx(1 / 4.5), pytest.approx(0.5 / 4.5)
    assert ContextMean(context_weight=0.5)(cut).tolist() == [0, one, one, 0, one, 0, one, half]
    assert ContextMean(context_weight=0.0)(cut).tolist() == TokenMean()(cut).tolist()
    # an idle segment does not count as one, one trained token has all the weight
    idle = batch([(0, [0, 0]), (0, [0, 1])], rewards=[1])
    for part in (TokenMean(), SequenceMean(), RolloutMean(), TokenSum(constant=1.0, per_rollout=True)):
        assert part(idle).tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("part", [TokenMean(), RolloutMean(), ContextMean(context_weight=0.1)])
def test_a_batch_without_a_trained_token_has_no_weight(part: TokenMean | RolloutMean | ContextMean) -> None:
    weights = part(batch([(0, [0, 0, 0])], rewards=[1]))
    assert weights.dtype == np.float32
    assert not weights.any()


@pytest.mark.parametrize("part", [TokenMean(), RolloutMean(), ContextMean(context_weight=0.1)])
def test_the_weights_of_a_batch_sum_to_one(part: TokenMean | RolloutMean | ContextMean) -> None:
    assert float(part(TWO).sum()) == pytest.approx(1)

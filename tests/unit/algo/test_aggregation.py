"""Weights of tokens in the loss of the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from algo_cases import batch, close

from rl_agent.algo.aggregation.context_mean import ContextMeanConfig
from rl_agent.algo.aggregation.rollout_mean import RolloutMeanConfig
from rl_agent.algo.aggregation.sequence_mean import SequenceMeanConfig
from rl_agent.algo.aggregation.token_mean import TokenMeanConfig
from rl_agent.algo.aggregation.token_sum import TokenSumConfig
from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from rl_agent.algo.base import Aggregation

TWO = batch([(0, [0, 1, 1, 1]), (1, [0, 0, 1])], rewards=[1, 0])


def test_token_mean_gives_every_trained_token_the_same() -> None:
    assert TokenMeanConfig().build()(TWO).tolist() == [0, 0.25, 0.25, 0.25, 0, 0, 0.25]


def test_rollout_mean_gives_every_rollout_the_same() -> None:
    sixth = pytest.approx(1 / 6)
    assert RolloutMeanConfig().build()(TWO).tolist() == [0, sixth, sixth, sixth, 0, 0, 0.5]


def test_rollout_mean_does_not_change_when_a_rollout_is_cut_into_more_segments() -> None:
    cut = batch([(0, [0, 1]), (0, [0, 1, 1]), (1, [0, 0, 1])], rewards=[1, 0])
    sixth = pytest.approx(1 / 6)
    assert RolloutMeanConfig().build()(cut).tolist() == [0, sixth, 0, sixth, sixth, 0, 0, 0.5]


def test_rollout_mean_does_not_count_rollouts_without_a_trained_token() -> None:
    idle = batch([(0, [0, 1]), (1, [0, 0]), (2, [0, 1])], rewards=[1, 0, 0])
    assert RolloutMeanConfig().build()(idle).tolist() == [0, 0.5, 0, 0, 0, 0.5]


def test_context_mean_counts_the_tokens_around_a_little_and_first_tokens_never() -> None:
    # 4 trained tokens and 1 other that something predicts: 1 / 4.1 and 0.1 / 4.1
    one, little = pytest.approx(1 / 4.1), pytest.approx(0.1 / 4.1)
    assert ContextMeanConfig(context_weight=0.1).build()(TWO).tolist() == [0, one, one, one, 0, little, one]


def test_sums_and_means_by_hand() -> None:
    # segments of 2 and 1 trained tokens of one rollout, 1 of another
    cut = batch([(0, [0, 1, 1]), (0, [0, 1]), (1, [0, 1, 0])], rewards=[1, 0])
    third, sixth = pytest.approx(1 / 3), pytest.approx(1 / 6)
    assert TokenMeanConfig().build()(cut).tolist() == [0, 0.25, 0.25, 0, 0.25, 0, 0.25, 0]
    assert SequenceMeanConfig().build()(cut).tolist() == [0, sixth, sixth, 0, third, 0, third, 0]
    assert RolloutMeanConfig().build()(cut).tolist() == [0, sixth, sixth, 0, sixth, 0, 0.5, 0]
    # 4 trained tokens and 1 other that something predicts: 1 / 4.5 and 0.5 / 4.5; with weight 0 it is the token mean
    one, half = pytest.approx(1 / 4.5), pytest.approx(0.5 / 4.5)
    assert ContextMeanConfig(context_weight=0.5).build()(cut).tolist() == [0, one, one, 0, one, 0, one, half]
    assert ContextMeanConfig(context_weight=0.0).build()(cut).tolist() == TokenMeanConfig().build()(cut).tolist()
    # an idle segment does not count as one, one trained token has all the weight
    idle = batch([(0, [0, 0]), (0, [0, 1])], rewards=[1])
    for part in (
        TokenMeanConfig().build(),
        SequenceMeanConfig().build(),
        RolloutMeanConfig().build(),
        TokenSumConfig(constant=1.0, per_rollout=True).build(),
    ):
        assert part(idle).tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(
    "part", [TokenMeanConfig().build(), RolloutMeanConfig().build(), ContextMeanConfig(context_weight=0.1).build()]
)
def test_a_batch_without_a_trained_token_has_no_weight(part: Aggregation) -> None:
    weights = part(batch([(0, [0, 0, 0])], rewards=[1]))
    assert weights.dtype == np.float32
    assert not weights.any()


@pytest.mark.parametrize(
    "part", [TokenMeanConfig().build(), RolloutMeanConfig().build(), ContextMeanConfig(context_weight=0.1).build()]
)
def test_the_weights_of_a_batch_sum_to_one(part: Aggregation) -> None:
    assert float(part(TWO).sum()) == pytest.approx(1)


def test_sequence_mean_and_token_sum() -> None:
    three = batch([(0, [0, 1, 1, 1]), (0, [0, 1]), (1, [0, 0])], rewards=[1, 0])
    assert SequenceMeanConfig().build()(three).tolist() == close(0, 1 / 6, 1 / 6, 1 / 6, 0, 1 / 2, 0, 0)
    assert TokenSumConfig(constant=8.0, per_rollout=False).build()(three).tolist() == close(
        0, *[1 / 8] * 3, 0, 1 / 8, 0, 0
    )
    assert TokenSumConfig(constant=8.0, per_rollout=True).build()(three).tolist() == close(
        0, *[1 / 8] * 3, 0, 1 / 8, 0, 0
    )
    two = batch([(0, [0, 1]), (1, [0, 1])], rewards=[1, 0])
    assert TokenSumConfig(constant=8.0, per_rollout=True).build()(two).tolist() == close(0, 1 / 16, 0, 1 / 16)
    with pytest.raises(ConfigError, match="constant"):
        TokenSumConfig(constant=0.0, per_rollout=True).build()


def test_the_token_sum_adds_up_over_micro_batches_and_copies() -> None:
    loss = np.array([0, 1, 2, 30, 0, 4, 50, 6], dtype=np.float32)
    two = batch([(0, [0, 1, 1, 0]), (1, [0, 1, 0, 1])], rewards=[0, 0])
    weights = TokenSumConfig(constant=1.0, per_rollout=False).build()(two)
    assert float((weights * loss).sum()) == 13
    assert float((weights * loss)[:4].sum()) + float((weights * loss)[4:].sum()) == 13
    # averaged over 4 copies, as other trainers do, it would have to be multiplied by 4: 52. Ours adds gradients up
    assert 4 * float((weights * loss).sum()) == 52


def test_rollout_mean_divides_by_the_rollouts_tokens_and_by_the_rollouts() -> None:
    # 4 tokens in two segments and 1 in one: 1 / (4 * 2) and 1 / (1 * 2)
    got = RolloutMeanConfig().build()(batch([(0, [0, 1, 1]), (0, [0, 1, 1]), (1, [0, 1])], rewards=[1, 0]))
    assert got.tolist() == close(0, 0.125, 0.125, 0, 0.125, 0.125, 0, 0.5)

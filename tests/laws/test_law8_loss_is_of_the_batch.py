"""Law 8, the loss is of the batch.

"Group statistics are over rollouts, however many segments each has; the loss does not depend on micro-batching, packing, order
or data-parallel size."
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agent.algo.advantage.grpo import GrpoConfig
from rl_agent.algo.aggregation.rollout_mean import RolloutMeanConfig
from rl_agent.algo.aggregation.token_mean import TokenMeanConfig
from rl_agent.algo.base import LossInput
from rl_agent.algo.batch import TrainBatch
from rl_agent.algo.correction.none import NoCorrectionConfig
from rl_agent.algo.kl.none import NoKlConfig
from rl_agent.algo.loss.ppo_clip import PpoClipConfig
from rl_agent.algo.shaping.rewards import RewardsConfig
from rl_agent.config.algo import AlgorithmConfig
from rl_agent.trainer.bin_packing import pack

if TYPE_CHECKING:
    from rl_agent.algo.algorithm import Algorithm

AGGREGATIONS = {"token_mean": TokenMeanConfig(), "rollout_mean": RolloutMeanConfig()}


def grpo(aggregation: str) -> Algorithm:
    return AlgorithmConfig(
        advantage=GrpoConfig(),
        loss=PpoClipConfig(),
        correction=NoCorrectionConfig(),
        kl=NoKlConfig(),
        aggregation=AGGREGATIONS[aggregation],
        shaping=RewardsConfig(),
    ).build()


@st.composite
def batches(draw: Any) -> TrainBatch:
    """Draw up to six rollouts in up to three groups, each with up to three segments of up to nine tokens."""
    lengths = draw(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3), min_size=1, max_size=6))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    segment_lengths = np.array([size for rollout in lengths for size in rollout], dtype=np.int32)
    total = int(segment_lengths.sum())
    mask = random.random(total) < 0.6
    mask[np.cumsum(segment_lengths) - segment_lengths] = False
    return TrainBatch(
        tokens=np.arange(total, dtype=np.int32),  # unique tokens: the "model" below has one parameter per token
        loss_mask=mask,
        rollout_logprobs=np.where(mask, random.normal(-2, 1, total), 0).astype(np.float32),
        weight_versions=np.where(mask, 0, -1).astype(np.int32),
        segment_lengths=segment_lengths,
        segment_rollout=np.repeat(np.arange(len(lengths)), [len(rollout) for rollout in lengths]).astype(np.int32),
        rewards=random.integers(0, 2, len(lengths)).astype(np.float32),
        rollout_group=(np.arange(len(lengths)) % 3).astype(np.int32),
    )


def loss_and_gradient(algorithm: Algorithm, batch: TrainBatch, *, budget: int, copies: int) -> tuple[float, np.ndarray]:
    """Return loss and gradient as the trainer computes them: micro-batches on several copies of a model, added up.

    The gradient is indexed by token *value*, so it can be compared across orders.
    """
    model = torch.linspace(-4, -0.5, len(batch.tokens), dtype=torch.float64).requires_grad_()
    advantages, weights = algorithm.advantages(batch), algorithm.weights(batch)
    starts, total = batch.segment_starts(), 0.0
    for segments in pack(batch.segment_lengths, budget=budget, copies=copies):
        places = [np.arange(starts[s] + 1, starts[s] + batch.segment_lengths[s]) for s in segments]
        at = np.concatenate([np.zeros(0, dtype=np.int64), *places])
        terms = algorithm.token_loss(
            LossInput(
                logprobs=model[batch.tokens[at]],
                old_logprobs=torch.from_numpy(batch.rollout_logprobs[at]).double(),
                advantages=torch.from_numpy(advantages[at]).double(),
                loss_mask=torch.from_numpy(batch.loss_mask[at]),
                segment=torch.from_numpy(np.repeat(np.arange(len(places)), [len(p) for p in places])),
            )
        )
        loss = (torch.from_numpy(weights[at]).double() * terms.loss).sum()
        loss.backward()
        total += loss.item()
    assert model.grad is not None
    return total, model.grad.numpy()


def reordered(batch: TrainBatch, order: np.ndarray) -> TrainBatch:
    """Return the same segments in another order."""
    starts = batch.segment_starts()
    places = np.concatenate([np.arange(starts[s], starts[s] + batch.segment_lengths[s]) for s in order])
    tokens = {
        name: getattr(batch, name)[places] for name in ("tokens", "loss_mask", "rollout_logprobs", "weight_versions")
    }
    return dataclasses.replace(
        batch, **tokens, segment_lengths=batch.segment_lengths[order], segment_rollout=batch.segment_rollout[order]
    )


def cut(batch: TrainBatch) -> TrainBatch:
    """Cut every segment before each of its untrained tokens: as many segments as possible, with the same trained tokens."""
    begins = ~batch.loss_mask
    lengths = np.diff([*np.flatnonzero(begins), len(batch.tokens)]).astype(np.int32)
    return dataclasses.replace(
        batch, segment_lengths=lengths, segment_rollout=batch.token_rollout()[begins].astype(np.int32)
    )


def assert_same(one: tuple[float, np.ndarray], other: tuple[float, np.ndarray]) -> None:
    assert one[0] == pytest.approx(other[0], abs=1e-6)
    np.testing.assert_allclose(one[1], other[1], atol=1e-6)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@given(batch=batches(), budget=st.integers(1, 60), copies=st.integers(1, 4), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_micro_batches_copies_and_order_do_not_change_loss_and_gradient(
    aggregation: str, batch: TrainBatch, budget: int, copies: int, seed: int
) -> None:
    algorithm = grpo(aggregation)
    whole = loss_and_gradient(algorithm, batch, budget=10_000, copies=1)
    order = np.random.default_rng(seed).permutation(len(batch.segment_lengths))
    assert_same(loss_and_gradient(algorithm, reordered(batch, order), budget=budget, copies=copies), whole)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@given(batch=batches())
@settings(deadline=None, max_examples=60)
def test_cutting_rollouts_into_more_segments_does_not_change_loss_and_gradient(
    aggregation: str, batch: TrainBatch
) -> None:
    algorithm = grpo(aggregation)
    whole = loss_and_gradient(algorithm, batch, budget=10_000, copies=1)
    assert_same(loss_and_gradient(algorithm, cut(batch), budget=10_000, copies=1), whole)


def test_sabotage_statistics_over_segments_are_noticed() -> None:
    """An advantage that counts a rollout once per segment, which the law forbids, changes when a rollout is cut."""

    def over_segments(batch: TrainBatch) -> np.ndarray:
        rewards = batch.rewards[batch.segment_rollout]
        return np.repeat(rewards - rewards.mean(), batch.segment_lengths).astype(np.float32)

    sabotaged = grpo("token_mean")
    sabotaged.advantage = over_segments
    batch = TrainBatch(
        tokens=np.arange(6, dtype=np.int32),
        loss_mask=np.array([False, True, False, True, False, True]),
        rollout_logprobs=np.full(6, -1, dtype=np.float32),
        weight_versions=np.zeros(6, dtype=np.int32),
        segment_lengths=np.array([4, 2], dtype=np.int32),
        segment_rollout=np.array([0, 1], dtype=np.int32),
        rewards=np.array([1, 0], dtype=np.float32),
        rollout_group=np.zeros(2, dtype=np.int32),
    )
    whole = loss_and_gradient(sabotaged, batch, budget=10_000, copies=1)
    with pytest.raises(AssertionError):
        assert_same(loss_and_gradient(sabotaged, cut(batch), budget=10_000, copies=1), whole)

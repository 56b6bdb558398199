"""Batches, algorithms and inputs for the tests of formulas."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from rl_agent.algo.advantage.grpo import GrpoConfig
from rl_agent.algo.aggregation.token_mean import TokenMeanConfig
from rl_agent.algo.base import CorrectionInput, LossInput, TokenLoss
from rl_agent.algo.batch import RolloutFacts, TrainBatch
from rl_agent.algo.correction.none import NoCorrectionConfig
from rl_agent.algo.kl.none import NoKlConfig
from rl_agent.algo.loss.ppo_clip import PpoClipConfig
from rl_agent.algo.ratio import log_ratio
from rl_agent.algo.shaping.rewards import RewardsConfig
from rl_agent.config.algo import AlgorithmConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.algo.algorithm import Algorithm

# advantages, proximal log-probabilities, current ones for ratios 0.5, 1, 1.5, and the sampler's
A = [1.0, -1.0, 2.0]
OLD = [-1.0, -1.0, -1.0]
CURRENT = [-1 + math.log(0.5), -1.0, -1 + math.log(1.5)]
SAMPLER = [-0.5, -1.5, -0.8]


def batch(
    segments: Sequence[tuple[int, Sequence[int]]], *, rewards: Sequence[float], groups: Sequence[int] | None = None
) -> TrainBatch:
    """Return a batch of `(rollout, mask)` segments; everything else is zero."""
    mask = np.array([m for _, own in segments for m in own], dtype=bool)
    return TrainBatch(
        tokens=np.zeros(len(mask), dtype=np.int32),
        loss_mask=mask,
        rollout_logprobs=np.zeros(len(mask), dtype=np.float32),
        weight_versions=np.where(mask, 0, -1).astype(np.int32),
        segment_lengths=np.array([len(own) for _, own in segments], dtype=np.int32),
        segment_rollout=np.array([rollout for rollout, _ in segments], dtype=np.int32),
        rewards=np.array(rewards, dtype=np.float32),
        rollout_group=np.array(groups if groups is not None else [0] * len(rewards), dtype=np.int32),
    )


def algorithm(**fields: Any) -> Algorithm:
    """Build GRPO with other parts or options where they are given."""
    parts = {
        "advantage": GrpoConfig(),
        "loss": PpoClipConfig(),
        "correction": NoCorrectionConfig(),
        "kl": NoKlConfig(),
        "aggregation": TokenMeanConfig(),
        "shaping": RewardsConfig(),
    }
    return AlgorithmConfig(**(parts | fields)).build()


def loss_input(logprobs: Any, old: Any, advantages: Any) -> LossInput:
    """Return the input of a loss: one segment, all of it trained."""
    current = torch.as_tensor(logprobs)
    return LossInput(
        logprobs=current,
        old_logprobs=torch.as_tensor(old),
        advantages=torch.as_tensor(advantages),
        loss_mask=torch.ones(len(current), dtype=torch.bool),
        segment=torch.zeros(len(current), dtype=torch.int64),
    )


def losses_and_gradients(
    loss: TokenLoss, ratios: list[float], advantages: list[float], **more: Any
) -> tuple[list[float], list[float]]:
    """Return the losses, and their gradients with respect to the current log-probabilities.

    The current probability is 0.5 at every token, the old one 0.5 / ratio. All tokens are one segment.
    """
    current = torch.full((len(ratios),), math.log(0.5), dtype=torch.float64, requires_grad=True)
    old = current.detach() - torch.tensor(ratios, dtype=torch.float64).log()
    inputs = loss_input(current, old, torch.tensor(advantages, dtype=torch.float64))
    terms = loss(dataclasses.replace(inputs, **more))
    terms.loss.sum().backward()
    assert current.grad is not None
    return terms.loss.tolist(), current.grad.tolist()


def corrected(old: Any, sampler: Any, mask: Any = None) -> CorrectionInput:
    """Return the input of a correction: one sequence."""
    logs = log_ratio(torch.as_tensor(old), torch.as_tensor(sampler))
    kept = torch.ones(len(logs), dtype=torch.bool) if mask is None else torch.tensor(mask, dtype=torch.bool)
    return CorrectionInput(log_weights=logs, loss_mask=kept, sequence=torch.zeros(len(logs), dtype=torch.int64))


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


def f32(*values: float) -> Any:
    return np.array(values, dtype=np.float32)


def i32(*values: int) -> Any:
    return np.array(values, dtype=np.int32)


def close(*expected: float) -> Any:
    return pytest.approx(list(expected), abs=1e-4)

"""Batches and algorithms for the tests of formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rl_agent.algo.algorithm import Algorithm, build_algorithm
from rl_agent.algo.base import LossInput
from rl_agent.algo.batch import TrainBatch
from rl_agent.config.algo import AlgorithmConfig, GrpoAdvantageConfig, TokenMeanConfig
from rl_agent.config.algo_loss import PpoClipLossConfig
from rl_agent.config.algo_parts import NoCorrectionConfig, NoKlConfig, ShapingConfig

if TYPE_CHECKING:
    from collections.abc import Sequence


def batch(
    segments: Sequence[tuple[int, Sequence[int]]], *, rewards: Sequence[float], groups: Sequence[int] | None = None
) -> TrainBatch:
    """A batch of `(rollout, mask)` segments; everything that is not said is zero."""
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
    """GRPO unless something else is said."""
    parts = {
        "advantage": GrpoAdvantageConfig(),
        "loss": PpoClipLossConfig(),
        "correction": NoCorrectionConfig(),
        "kl": NoKlConfig(),
        "aggregation": TokenMeanConfig(),
        "shaping": ShapingConfig(),
    }
    return build_algorithm(AlgorithmConfig(**(parts | fields)))


def loss_input(logprobs: Any, old: Any, advantages: Any) -> LossInput:
    """One segment, all of it trained."""
    current = torch.as_tensor(logprobs)
    return LossInput(
        logprobs=current,
        old_logprobs=torch.as_tensor(old),
        advantages=torch.as_tensor(advantages),
        loss_mask=torch.ones(len(current), dtype=torch.bool),
        segment=torch.zeros(len(current), dtype=torch.int64),
    )

"""The algorithm: a frozen bundle of parts and of the numbers that no part owns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_agent.config.algo import LrDecay, SegmentCredit
from rl_agent.config.load import build, locate, parameters, target
from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from rl_agent.algo.base import Advantage, Aggregation, LossInput, LossTerms, TokenLoss
    from rl_agent.algo.batch import Float32, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """Built from conf/algo; every part is an object that is called. Fields: see `AlgorithmConfig`."""

    advantage: Advantage
    loss: TokenLoss
    aggregation: Aggregation
    lr: float
    lr_warmup_steps: int
    lr_decay: LrDecay
    lr_min_ratio: float
    epochs: int
    minibatches: int
    group_size: int
    max_staleness: int
    segment_credit: SegmentCredit

    def __post_init__(self) -> None:
        for name in ("epochs", "minibatches", "group_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"algo.{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("lr", "lr_warmup_steps", "lr_min_ratio", "max_staleness"):
            if getattr(self, name) < 0:
                raise ConfigError(f"algo.{name} is {getattr(self, name)}; it must not be negative")

    def advantages(self, batch: TrainBatch) -> Float32:
        """[T] float32: the advantage of each token, after the segments have shared it (`segment_credit`)."""
        values = _checked("advantage", self.advantage(batch), batch)
        if self.segment_credit is SegmentCredit.divided:
            segments = np.bincount(batch.segment_rollout, minlength=len(batch.rewards))
            values = np.divide(values, segments[batch.token_rollout()], dtype=np.float32)
        return values

    def weights(self, batch: TrainBatch) -> Float32:
        """[T] float32: the weight of each token's loss, normalised over this batch as a whole."""
        return _checked("aggregation", self.aggregation(batch), batch)

    def token_loss(self, inputs: LossInput) -> LossTerms:
        """The loss of each token of a micro-batch."""
        return self.loss(inputs)

    def learning_rate(self, step: int, total_steps: int) -> float:
        """The learning rate of the batch after `step` finished ones, out of `total_steps`."""
        if step < self.lr_warmup_steps:
            return self.lr * (step + 1) / self.lr_warmup_steps
        if self.lr_decay is LrDecay.constant:
            return self.lr
        span = max(1, total_steps - self.lr_warmup_steps)
        done = min(1.0, (step - self.lr_warmup_steps) / span)
        left = 1.0 - done if self.lr_decay is LrDecay.linear else 0.5 * (1.0 + math.cos(math.pi * done))
        return self.lr * (self.lr_min_ratio + (1.0 - self.lr_min_ratio) * left)


def build_algorithm(node: Any) -> Algorithm:
    """The algorithm that a loaded `algo` config describes, its parts built first."""
    parts = {name: build(getattr(node, name)) for name in ("advantage", "loss", "aggregation")}
    algorithm: Algorithm = locate(target(node))(**(parameters(node) | parts))
    return algorithm


def _checked(part: str, values: Float32, batch: TrainBatch) -> Float32:
    """A part comes from anywhere (`_target_`): assert what it returns where it enters."""
    if values.shape != batch.tokens.shape:
        raise ConfigError(f"algo.{part} returned shape {values.shape} for {len(batch.tokens)} tokens")
    if not np.isfinite(values).all():
        raise ConfigError(f"algo.{part} returned values that are not finite")
    return values

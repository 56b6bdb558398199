"""The sum over trained tokens, divided by a constant: `w = mask / (constant * rollouts)`.

Dr. GRPO (arXiv 2503.20783): with the largest allowed length as the constant, a token weighs the same whatever the length of its
rollout and whatever the batch. Without `per_rollout` it is the plain sum. Worked: 4 trained tokens in 2 rollouts, constant 8:
w = 1/16 each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from rl_agent.config.algo import AggregationConfig
from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from rl_agent.algo.batch import Float32, TrainBatch


@dataclass(kw_only=True)
class TokenSumConfig(AggregationConfig):
    """The sum over trained tokens, divided by a constant."""

    constant: float = 1.0
    """Dr. GRPO: the maximum number of tokens of a rollout."""
    per_rollout: bool = True
    """Also divide by the number of rollouts with a trained token."""

    @override
    def build(self) -> TokenSum:
        return TokenSum(self)


class TokenSum:
    """See `TokenSumConfig`."""

    def __init__(self, config: TokenSumConfig) -> None:
        if config.constant <= 0:
            raise ConfigError(f"algo.aggregation.constant: {config.constant} is not positive. Set it above 0.")
        self.config = config

    def __call__(self, batch: TrainBatch) -> Float32:
        """Return the weights: [T] float32. Rollouts without a trained token do not count."""
        rollouts = max(1, int((batch.trained_tokens() > 0).sum())) if self.config.per_rollout else 1
        weights: Float32 = (batch.loss_mask / (self.config.constant * rollouts)).astype(np.float32)
        return weights

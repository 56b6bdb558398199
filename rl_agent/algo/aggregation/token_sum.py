"""The sum over trained tokens over a constant: `w = mask / (constant * rollouts)`.

Dr. GRPO (arXiv 2503.20783): with the largest allowed length as the constant, a token weighs the same whatever the length of its
rollout and whatever the batch. Without `per_rollout` it is the plain sum. Worked: 4 trained tokens in 2 rollouts, constant 8:
w = 1/16 each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rl_agent.algo.ratio import floats
from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from rl_agent.algo.batch import Float32, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSum:
    """See `TokenSumConfig`."""

    constant: float
    per_rollout: bool

    def __post_init__(self) -> None:
        if self.constant <= 0:
            raise ConfigError(f"algo.aggregation.constant is {self.constant}; it must be above 0")

    def __call__(self, batch: TrainBatch) -> Float32:
        """[T] float32; rollouts without a trained token are not counted."""
        rollouts = max(1, int((batch.trained_tokens() > 0).sum())) if self.per_rollout else 1
        return floats(torch.from_numpy(batch.loss_mask)).mul_(1.0 / (self.constant * rollouts)).numpy()

"""The contracts of an algorithm's parts.

All arrays are flat and packed, see `TrainBatch`: `T` tokens of the whole batch, `t` tokens of one micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from rl_agent.algo.batch import Float32, TrainBatch


class Advantage(Protocol):
    """How much better than expected each token was."""

    def __call__(self, batch: TrainBatch) -> Float32:
        """[T] float32, for every token of a rollout, trained or not. Statistics are over rollouts (law 8)."""


class Aggregation(Protocol):
    """How much each token counts."""

    def __call__(self, batch: TrainBatch) -> Float32:
        """[T] float32: the batch's loss is `sum(weight * token_loss)`, so it can be cut anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInput:
    """What a loss may look at: one micro-batch, whole segments, one entry a predicted token."""

    logprobs: Tensor
    """[t] float32: under the current weights; the only tensor that carries a gradient."""
    old_logprobs: Tensor
    """[t] float32: under the weights that the trust region is around; the sampler's. 0 where `loss_mask` is false."""
    advantages: Tensor
    """[t] float32."""
    loss_mask: Tensor
    """[t] bool: the policy sampled this token and it trains."""
    segment: Tensor
    """[t] int64: number of the token's segment within the micro-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTerms:
    """What a loss gives back."""

    loss: Tensor
    """[t] float32, not yet weighted."""
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    """[t] tensors without gradient; the trainer reports their means over the trained tokens."""


class TokenLoss(Protocol):
    """A loss for each token."""

    def __call__(self, inputs: LossInput) -> LossTerms:
        """One loss a token, from whatever lies in the same segments; never across the micro-batch."""

"""Protocols of an algorithm's parts, and their inputs and outputs.

All arrays are flat and packed, see `TrainBatch`: `T` tokens of the whole batch, `t` tokens of one micro-batch. Arrays of the whole
batch are NumPy on the host; tensors that a gradient flows through are torch, on the trainer's device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from rl_agent.algo.batch import Bool, Float32, TrainBatch


class Advantage(Protocol):
    """Advantage of each token."""

    def __call__(self, batch: TrainBatch) -> Float32:
        """Return the advantages: [T] float32, trained tokens or not. Statistics are over rollouts (law 8)."""


@runtime_checkable
class WithCritic(Protocol):
    """An advantage that learns a value function."""

    critic_lr: float
    value_clip: float | None
    """Maximum distance of the new value from the old one; None: no limit."""

    def with_targets(self, batch: TrainBatch) -> tuple[Float32, Float32]:
        """Return the advantages and the targets of the critic, in units of reward: [T] float32 each."""


class Aggregation(Protocol):
    """Weight of each token."""

    def __call__(self, batch: TrainBatch) -> Float32:
        """Return the weights: [T] float32. The loss of the batch is `sum(weight * token_loss)`, however it is cut.

        Weights depend on the loss mask alone: tokens that a correction rejects still count in the denominator.
        """


class Shaping(Protocol):
    """Penalties on rewards, and filters on rollouts."""

    def __call__(self, batch: TrainBatch) -> ShapedBatch:
        """Shape a batch that has no scores yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedBatch:
    """A batch with its final rewards, and metrics of the changes."""

    batch: TrainBatch
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInput:
    """Input of a loss: one micro-batch of whole segments, one entry per predicted token."""

    logprobs: Tensor
    """[t] float32: under the current weights. The only tensor that carries a gradient."""
    old_logprobs: Tensor
    """[t] float32: under the proximal policy (see `Proximal`). 0 where `loss_mask` is false."""
    advantages: Tensor
    """[t] float32."""
    loss_mask: Tensor
    """[t] bool: the policy sampled this token and it trains."""
    segment: Tensor
    """[t] int64: index of the token's segment within the micro-batch."""
    rollout_logprobs: Tensor | None = None
    """[t] float32: the sampler's; None: the same as `old_logprobs`."""
    staleness: Tensor | None = None
    """[t] int32: the trainer's weight version minus the token's; -1 for tokens without one; None: unknown."""
    reference_logprobs: Tensor | None = None
    teacher_logprobs: Tensor | None = None
    correction: Tensor | None = None
    """[t] float32: factor of each token's loss; None: 1."""
    corrected: Tensor | None = None
    """[t] bool: tokens whose factor is not the plain importance weight (capped or rejected)."""
    marked: Tensor | None = None
    """[t] bool: tokens that the loss marked in the whole batch (`MarksTokens`)."""
    kl_coefficient: float = 0.0
    """Coefficient of the penalty in the loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTerms:
    """Output of a loss."""

    loss: Tensor
    """[t] float32, before weighting."""
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    """[t] tensors without gradient. The trainer reports their means over the trained tokens."""


class TokenLoss(Protocol):
    """Loss of each token."""

    def __call__(self, inputs: LossInput) -> LossTerms:
        """Return one loss per token. It may depend on tokens of the same segment, never on other segments."""


@runtime_checkable
class MarksTokens(Protocol):
    """A loss that treats some tokens differently, chosen among all tokens of the batch."""

    def marks(self, batch: TrainBatch, advantages: Float32) -> Bool:
        """Mark tokens: [T] bool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionInput:
    """Input of a correction."""

    log_weights: Tensor
    """[t] float32: log-probability under the proximal policy minus the sampler's, bounded to +-20."""
    loss_mask: Tensor
    """[t] bool."""
    sequence: Tensor
    """[t] int64: index of the token's sequence. A sequence is a rollout if the whole batch is corrected at once, else a segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionTerms:
    """Output of a correction. No gradient flows through it."""

    weights: Tensor
    """[t] float32: factor of each token's loss; 0 rejects it."""
    corrected: Tensor
    """[t] bool: tokens whose factor is not the plain importance weight."""


class Correction(Protocol):
    """Weights for the gap between the sampler and the proximal policy."""

    def __call__(self, inputs: CorrectionInput) -> CorrectionTerms:
        """Return the weights of tokens."""


class Kl(Protocol):
    """Penalty for leaving a reference policy."""

    def __call__(self, logprobs: Tensor, reference: Tensor, rollout_logprobs: Tensor | None) -> Tensor:
        """Return the divergence of each token before the coefficient: [t] float32."""

    def next_coefficient(self, coefficient: float, measured: float, rollouts: int) -> float:
        """Return the coefficient of the next step, after one of `rollouts` rollouts with `measured` divergence per token."""

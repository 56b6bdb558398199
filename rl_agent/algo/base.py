"""The contracts of an algorithm's parts.

All arrays are flat and packed, see `TrainBatch`: `T` tokens of the whole batch, `t` tokens of one micro-batch. What concerns the
whole batch is NumPy on the host; what the gradient flows through is torch, on the trainer's device. A part may have a property
`needs` (a frozenset of `Need`): the scores that the trainer must give it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from rl_agent.algo.batch import Bool, Float32, TrainBatch
    from rl_agent.config.algo_parts import KlPlace, Proximal


class Advantage(Protocol):
    """How much better than expected each token was."""

    def __call__(self, batch: TrainBatch) -> Float32:
        """[T] float32, for every token of a rollout, trained or not. Statistics are over rollouts (law 8)."""


@runtime_checkable
class WithCritic(Protocol):
    """An advantage that learns a value function."""

    critic_lr: float
    value_clip: float | None
    """The new value may leave the old one by this much; None: freely."""

    def with_targets(self, batch: TrainBatch) -> tuple[Float32, Float32]:
        """[T] float32 each: the advantages, and what the critic should have said, in units of reward."""


class Aggregation(Protocol):
    """How much each token counts."""

    def __call__(self, batch: TrainBatch) -> Float32:
        """[T] float32: the batch's loss is `sum(weight * token_loss)`, so it can be cut anywhere.

        Of the loss mask alone: what a correction rejects still counts in the denominator.
        """


class Shaping(Protocol):
    """Which rollouts train, and what is added to their rewards."""

    def __call__(self, batch: TrainBatch) -> ShapedBatch:
        """Before anything is scored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedBatch:
    """A batch with its final rewards, and what was done to it."""

    batch: TrainBatch
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInput:
    """What a loss may look at: one micro-batch, whole segments, one entry a predicted token."""

    logprobs: Tensor
    """[t] float32: under the current weights; the only tensor that carries a gradient."""
    old_logprobs: Tensor
    """[t] float32: under the weights that the trust region is around (`Proximal`). 0 where `loss_mask` is false."""
    advantages: Tensor
    """[t] float32."""
    loss_mask: Tensor
    """[t] bool: the policy sampled this token and it trains."""
    segment: Tensor
    """[t] int64: number of the token's segment within the micro-batch."""
    rollout_logprobs: Tensor | None = None
    """[t] float32: the sampler's; None: the same as `old_logprobs`."""
    staleness: Tensor | None = None
    """[t] int32: the trainer's weight version minus the token's; -1 where it has none; None: nobody knows."""
    reference_logprobs: Tensor | None = None
    teacher_logprobs: Tensor | None = None
    correction: Tensor | None = None
    """[t] float32: factor of each token's loss; None: 1."""
    corrected: Tensor | None = None
    """[t] bool: where that factor is not the plain importance weight (capped or rejected)."""
    marked: Tensor | None = None
    """[t] bool: what the loss chose from the whole batch (`MarksTokens`)."""
    kl_coefficient: float = 0.0
    """Of the penalty in the loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTerms:
    """What a loss gives back."""

    loss: Tensor
    """[t] float32, not yet weighted."""
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    """[t] tensors without gradient; the trainer reports their means over the trained tokens."""


class TokenLoss(Protocol):
    """A loss for each token. With a true attribute `trains_without_advantage`, a batch of zero advantages is not skipped."""

    def __call__(self, inputs: LossInput) -> LossTerms:
        """One loss a token, from whatever lies in the same segments; never across the micro-batch."""


@runtime_checkable
class MarksTokens(Protocol):
    """A loss that treats some tokens differently, chosen by comparing all tokens of the batch."""

    def marks(self, batch: TrainBatch, advantages: Float32) -> Bool:
        """[T] bool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionInput:
    """What a correction looks at."""

    log_weights: Tensor
    """[t] float32: log-probability under the proximal policy minus the sampler's, bounded to +-20."""
    loss_mask: Tensor
    """[t] bool."""
    sequence: Tensor
    """[t] int64: which tokens are one sequence: those of one rollout where the whole batch is corrected at once, else those of
    one segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionTerms:
    """What a correction gives back; no gradient flows through it."""

    weights: Tensor
    """[t] float32: factor of each token's loss; 0 rejects it."""
    corrected: Tensor
    """[t] bool: where the factor is not the plain importance weight."""


class Correction(Protocol):
    """How much of a token's gradient is believed, given how unlike the sampler the proximal policy is."""

    @property
    def proximal(self) -> Proximal:
        """The policy that the trust region is around."""

    def __call__(self, inputs: CorrectionInput) -> CorrectionTerms:
        """Weights of tokens."""


class Kl(Protocol):
    """A penalty for leaving a reference policy."""

    @property
    def place(self) -> KlPlace:
        """Where it is put."""

    @property
    def coefficient(self) -> float:
        """At the start."""

    def __call__(self, logprobs: Tensor, reference: Tensor, rollout_logprobs: Tensor | None) -> Tensor:
        """[t] float32: the divergence of each token, not yet multiplied by the coefficient."""

    def next_coefficient(self, coefficient: float, measured: float, rollouts: int) -> float:
        """The coefficient of the next step, after one of `rollouts` rollouts with `measured` divergence a token."""

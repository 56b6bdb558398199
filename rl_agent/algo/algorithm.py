"""The algorithm: a frozen bundle of parts and of the numbers that no part owns."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from rl_agent.algo.base import CorrectionInput, LossTerms, MarksTokens, WithCritic
from rl_agent.algo.correction.none import NoCorrection
from rl_agent.algo.correction.proximal import approximated
from rl_agent.algo.prepared import Prepared
from rl_agent.algo.ratio import LOGPROB_FLOOR, floats, floored, lie_within, log_ratio
from rl_agent.algo.scores import Need
from rl_agent.config.algo import LrDecay, SegmentCredit
from rl_agent.config.algo_parts import KlPlace, Proximal
from rl_agent.config.names import locate
from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from rl_agent.algo.base import (
        Advantage,
        Aggregation,
        Correction,
        CorrectionTerms,
        Kl,
        LossInput,
        ShapedBatch,
        Shaping,
        TokenLoss,
    )
    from rl_agent.algo.batch import Float32, TrainBatch

PARTS: Final = ("advantage", "loss", "correction", "kl", "aggregation", "shaping")


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """Built from conf/algo; every part is an object that is called. Fields: see `AlgorithmConfig`.

    The trainer asks in this order: `shaped`, `needs` (and scores the batch), `prepared`, then for each minibatch `weights`, and
    for each micro-batch `token_loss`.
    """

    advantage: Advantage
    loss: TokenLoss
    correction: Correction
    kl: Kl
    aggregation: Aggregation
    shaping: Shaping
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
        if Need.TEACHER_LOGPROBS in self.needs and self.folder(Need.TEACHER_LOGPROBS) is None:
            raise ConfigError("algo.loss.teacher is null; set it to the Hugging Face folder of the teacher")

    @property
    def needs(self) -> frozenset[Need]:
        """The scores that a batch must have before `prepared`."""
        own: frozenset[Need] = frozenset()
        if self.correction.proximal is Proximal.recomputed:
            own = frozenset({Need.OLD_LOGPROBS})
        return own.union(*(getattr(getattr(self, part), "needs", own) for part in PARTS))

    def folder(self, need: Need) -> str | None:
        """The Hugging Face folder of the frozen policy that gives a score; None: the one that training starts from."""
        part, name = (self.kl, "reference") if need is Need.REFERENCE_LOGPROBS else (self.loss, "teacher")
        return getattr(part, name, None)

    @property
    def critic(self) -> WithCritic | None:
        """What the critic is to learn, if there is one."""
        return self.advantage if isinstance(self.advantage, WithCritic) else None

    @property
    def trains_without_advantage(self) -> bool:
        """Whether a batch whose advantages are all zero still has a gradient."""
        return self.kl.place is KlPlace.loss or bool(getattr(self.loss, "trains_without_advantage", False))

    def shaped(self, batch: TrainBatch) -> ShapedBatch:
        """The batch with its final rewards, without what is not to train."""
        return self.shaping(batch)

    def prepared(self, batch: TrainBatch, kl_coefficient: float | None = None) -> Prepared:
        """Everything that is of the batch as a whole. It has been scored with `needs`, on the same weights.

        `kl_coefficient`: None stands for the configured one; others come from adapting it.
        """
        coefficient = self.kl.coefficient if kl_coefficient is None else kl_coefficient
        batch = _floored(batch)
        old = batch.rollout_logprobs
        if self.correction.proximal is Proximal.recomputed:
            old = np.where(batch.loss_mask, batch.scores.get(Need.OLD_LOGPROBS), np.float32(0.0))
        divergence = self._divergence(batch, old)
        kl = None if divergence is None else _mean(divergence, batch)
        if divergence is not None and self.kl.place is KlPlace.reward:
            batch = replace(batch, token_rewards=divergence.mul_(-coefficient).numpy())
        advantages, value_targets = self._credited(batch)
        terms = None
        if self.correction.proximal is Proximal.recomputed and not isinstance(self.correction, NoCorrection):
            terms = self._corrected_whole(batch, old)
        return Prepared(
            batch=batch,
            advantages=advantages,
            old_logprobs=old,
            correction=None if terms is None else terms.weights.numpy(),
            corrected=None if terms is None else terms.corrected.numpy(),
            marked=self.loss.marks(batch, advantages) if isinstance(self.loss, MarksTokens) else None,
            value_targets=value_targets,
            kl=kl,
            kl_coefficient=coefficient,
        )

    def advantages(self, batch: TrainBatch) -> Float32:
        """[T] float32: the advantage of each token, after the segments have shared it (`segment_credit`)."""
        return self._credited(batch)[0]

    def _credited(self, batch: TrainBatch) -> tuple[Float32, Float32 | None]:
        """Advantages, and the critic's targets if there is one."""
        found, targets = (self.advantage(batch), None) if self.critic is None else self.critic.with_targets(batch)
        values = _checked("advantage", found, batch)
        if self.segment_credit is SegmentCredit.divided:
            segments = np.bincount(batch.segment_rollout, minlength=len(batch.rewards))
            values = np.divide(values, segments[batch.token_rollout()], dtype=np.float32)
        return values, targets

    def weights(self, batch: TrainBatch) -> Float32:
        """[T] float32: the weight of each token's loss, normalised over this batch as a whole."""
        return _checked("aggregation", self.aggregation(batch), batch)

    def token_loss(self, inputs: LossInput) -> LossTerms:
        """The loss of each token of a micro-batch: the loss part's, corrected, with the penalty that belongs into the loss."""
        inputs = self._around(inputs)
        terms = self.loss(inputs)
        loss, metrics = terms.loss, dict(terms.metrics)
        if inputs.correction is not None:
            loss = loss * inputs.correction
            metrics |= {"correction/weight": inputs.correction, "correction/rejected": inputs.correction == 0}
            if inputs.corrected is not None:
                metrics["correction/changed"] = inputs.corrected
        if inputs.reference_logprobs is not None and self.kl.place is KlPlace.loss:
            penalty = self.kl(inputs.logprobs, inputs.reference_logprobs, inputs.rollout_logprobs)
            metrics["reference_kl"] = penalty.detach()
            loss = loss + inputs.kl_coefficient * penalty
        return LossTerms(loss=loss, metrics=metrics)

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

    def _around(self, inputs: LossInput) -> LossInput:
        """With the proximal policy and its correction, where both follow from the current policy."""
        proximal = self.correction.proximal
        if proximal not in (Proximal.approximated, Proximal.current):
            return inputs
        sampler = inputs.old_logprobs
        old = floored(inputs.logprobs.detach())
        if proximal is Proximal.approximated:
            if inputs.staleness is None:
                raise ConfigError("algo.correction.proximal=approximated needs the weight version of every token")
            old = approximated(old, sampler, inputs.staleness)
        inputs = replace(inputs, old_logprobs=old, rollout_logprobs=sampler)
        if isinstance(self.correction, NoCorrection):
            return inputs
        terms = self.correction(
            CorrectionInput(log_weights=log_ratio(old, sampler), loss_mask=inputs.loss_mask, sequence=inputs.segment)
        )
        return replace(inputs, correction=terms.weights, corrected=terms.corrected)

    def _corrected_whole(self, batch: TrainBatch, old: Float32) -> CorrectionTerms:
        """Sequences are whole rollouts: so the correction does not depend on how they were cut."""
        rollout = torch.from_numpy(batch.token_rollout().astype(np.int64))
        sampler = torch.from_numpy(batch.rollout_logprobs)
        return self.correction(
            CorrectionInput(
                log_weights=log_ratio(torch.from_numpy(old), sampler),
                loss_mask=torch.from_numpy(batch.loss_mask),
                sequence=rollout,
            )
        )

    def _divergence(self, batch: TrainBatch, old: Float32) -> torch.Tensor | None:
        """[T] float32: from the reference policy, before the update, 0 at tokens that do not train; None without either."""
        if self.kl.place is KlPlace.nowhere or not batch.loss_mask.any():
            return None
        reference = torch.from_numpy(batch.scores.get(Need.REFERENCE_LOGPROBS))
        return self.kl(torch.from_numpy(old), reference, None) * floats(torch.from_numpy(batch.loss_mask))


def build_algorithm(node: Any) -> Algorithm:
    """The algorithm that a loaded `algo` config describes, its parts built first."""
    parts = {name: getattr(node, name).build() for name in PARTS}
    algorithm: Algorithm = locate(target(node))(**(parameters(node) | parts))
    return algorithm


def _floored(batch: TrainBatch) -> TrainBatch:
    """With probabilities of zero as `LOGPROB_FLOOR`; nothing is copied where there are none."""

    def possible(logprobs: Float32 | None) -> Float32 | None:
        if logprobs is None or lie_within(torch.from_numpy(logprobs), LOGPROB_FLOOR, math.inf):
            return logprobs
        return np.maximum(logprobs, np.float32(LOGPROB_FLOOR))

    scores = batch.scores
    scores = replace(
        scores,
        old_logprobs=possible(scores.old_logprobs),
        reference_logprobs=possible(scores.reference_logprobs),
        teacher_logprobs=possible(scores.teacher_logprobs),
    )
    sampler = possible(batch.rollout_logprobs)
    return replace(batch, rollout_logprobs=batch.rollout_logprobs if sampler is None else sampler, scores=scores)


def _mean(of_trained: torch.Tensor, batch: TrainBatch) -> float:
    """Of [T] values that are 0 where nothing trains: over the trained tokens, of which there are some."""
    return float(of_trained.sum(dtype=torch.float64)) / int(np.count_nonzero(batch.loss_mask))


def _checked(part: str, values: Float32, batch: TrainBatch) -> Float32:
    """A part comes from anywhere (`_target_`): assert what it returns where it enters."""
    if values.shape != batch.tokens.shape:
        raise ConfigError(f"algo.{part} returned shape {values.shape} for {len(batch.tokens)} tokens")
    if not np.isfinite(values).all():
        raise ConfigError(f"algo.{part} returned values that are not finite")
    return values

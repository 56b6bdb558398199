"""The algorithm: six parts, called in order by the trainer."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from rl_agent.algo.base import CorrectionInput, LossTerms, MarksTokens, WithCritic
from rl_agent.algo.batch import Prepared
from rl_agent.algo.ratio import LOGPROB_FLOOR, approximated, floored, log_ratio
from rl_agent.config.algo import KlPlace, LrDecay, Need, Proximal, SegmentCredit
from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from rl_agent.algo.base import CorrectionTerms, LossInput, ShapedBatch
    from rl_agent.algo.batch import Float32, TrainBatch
    from rl_agent.config.algo import AlgorithmConfig


class Algorithm:
    """See `AlgorithmConfig`.

    The trainer calls `shaped`, scores the batch with `config.needs`, calls `prepared`, then `weights` for each minibatch and
    `token_loss` for each micro-batch.
    """

    def __init__(self, config: AlgorithmConfig) -> None:
        self.config = config
        self.advantage = config.advantage.build()
        self.loss = config.loss.build()
        self.correction = config.correction.build()
        self.kl = config.kl.build()
        self.aggregation = config.aggregation.build()
        self.shaping = config.shaping.build()

    @property
    def critic(self) -> WithCritic | None:
        """The advantage that trains a critic, if there is one."""
        return self.advantage if isinstance(self.advantage, WithCritic) else None

    def shaped(self, batch: TrainBatch) -> ShapedBatch:
        """Return the batch with its final rewards, without the rollouts that do not train."""
        return self.shaping(batch)

    def prepared(self, batch: TrainBatch, kl_coefficient: float | None = None) -> Prepared:
        """Compute everything that belongs to the batch as a whole.

        Args:
            batch: Scored with `config.needs`, all on the same weights.
            kl_coefficient: Adapted coefficient; None: the configured one.
        """
        coefficient = self.config.kl.coefficient if kl_coefficient is None else kl_coefficient
        batch = _floored(batch)
        recomputed = self.config.correction.proximal is Proximal.recomputed
        old = batch.rollout_logprobs
        if recomputed:
            old = np.where(batch.loss_mask, batch.scores.get(Need.OLD_LOGPROBS), np.float32(0.0))
        kl = None
        if self.config.kl.place is not KlPlace.nowhere and batch.loss_mask.any():
            reference = torch.from_numpy(batch.scores.get(Need.REFERENCE_LOGPROBS))
            divergence = np.where(batch.loss_mask, self.kl(torch.from_numpy(old), reference, None).numpy(), 0.0)
            kl = float(divergence[batch.loss_mask].mean(dtype=np.float64))
            if self.config.kl.place is KlPlace.reward:
                batch = replace(batch, token_rewards=(-coefficient * divergence).astype(np.float32))
        advantages, value_targets = self._credited(batch)
        terms = self._corrected_whole(batch, old) if recomputed and self.config.correction.corrects else None
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
        """Return the advantage of each token, after `segment_credit`: [T] float32."""
        return self._credited(batch)[0]

    def _credited(self, batch: TrainBatch) -> tuple[Float32, Float32 | None]:
        """Return the advantages and the targets of the critic, if there is one."""
        found, targets = (self.advantage(batch), None) if self.critic is None else self.critic.with_targets(batch)
        values = _checked("advantage", found, batch)
        if self.config.segment_credit is SegmentCredit.divided:
            segments = np.bincount(batch.segment_rollout, minlength=len(batch.rewards))
            values = np.divide(values, segments[batch.token_rollout()], dtype=np.float32)
        return values, targets

    def weights(self, batch: TrainBatch) -> Float32:
        """Return the weight of each token's loss, normalized over this batch as a whole: [T] float32."""
        return _checked("aggregation", self.aggregation(batch), batch)

    def token_loss(self, inputs: LossInput) -> LossTerms:
        """Return the loss of each token of a micro-batch, corrected, with the KL penalty if it belongs to the loss."""
        inputs = self._with_proximal(inputs)
        terms = self.loss(inputs)
        loss, metrics = terms.loss, dict(terms.metrics)
        if inputs.correction is not None:
            loss = loss * inputs.correction
            metrics |= {"correction/weight": inputs.correction, "correction/rejected": inputs.correction == 0}
            if inputs.corrected is not None:
                metrics["correction/changed"] = inputs.corrected
        if inputs.reference_logprobs is not None and self.config.kl.place is KlPlace.loss:
            penalty = self.kl(inputs.logprobs, inputs.reference_logprobs, inputs.rollout_logprobs)
            metrics["reference_kl"] = penalty.detach()
            loss = loss + inputs.kl_coefficient * penalty
        return LossTerms(loss=loss, metrics=metrics)

    def learning_rate(self, step: int, total_steps: int) -> float:
        """Return the learning rate after `step` of `total_steps` finished steps."""
        config = self.config
        if step < config.lr_warmup_steps:
            return config.lr * (step + 1) / config.lr_warmup_steps
        if config.lr_decay is LrDecay.constant:
            return config.lr
        span = max(1, total_steps - config.lr_warmup_steps)
        done = min(1.0, (step - config.lr_warmup_steps) / span)
        left = 1.0 - done if config.lr_decay is LrDecay.linear else 0.5 * (1.0 + math.cos(math.pi * done))
        return config.lr * (config.lr_min_ratio + (1.0 - config.lr_min_ratio) * left)

    def _with_proximal(self, inputs: LossInput) -> LossInput:
        """Add the proximal policy and its correction if both follow from the current policy."""
        proximal = self.config.correction.proximal
        if proximal not in (Proximal.approximated, Proximal.current):
            return inputs
        sampler = inputs.old_logprobs
        old = floored(inputs.logprobs.detach())
        if proximal is Proximal.approximated:
            if inputs.staleness is None:
                raise ConfigError(
                    "algo.correction.proximal=approximated: the weight versions of the tokens are unknown."
                )
            old = approximated(old, sampler, inputs.staleness)
        inputs = replace(inputs, old_logprobs=old, rollout_logprobs=sampler)
        if not self.config.correction.corrects:
            return inputs
        terms = self.correction(
            CorrectionInput(log_weights=log_ratio(old, sampler), loss_mask=inputs.loss_mask, sequence=inputs.segment)
        )
        return replace(inputs, correction=terms.weights, corrected=terms.corrected)

    def _corrected_whole(self, batch: TrainBatch, old: Float32) -> CorrectionTerms:
        """Correct the whole batch. Sequences are rollouts, so the correction does not depend on how they are cut."""
        return self.correction(
            CorrectionInput(
                log_weights=log_ratio(torch.from_numpy(old), torch.from_numpy(batch.rollout_logprobs)),
                loss_mask=torch.from_numpy(batch.loss_mask),
                sequence=torch.from_numpy(batch.token_rollout()).long(),
            )
        )


def _floored(batch: TrainBatch) -> TrainBatch:
    """Replace log-probabilities below `LOGPROB_FLOOR` by it."""

    def floor(logprobs: Float32) -> Float32:
        return np.maximum(logprobs, np.float32(LOGPROB_FLOOR))

    names = ("old_logprobs", "reference_logprobs", "teacher_logprobs")
    given = {name: getattr(batch.scores, name) for name in names}
    scores = replace(batch.scores, **{name: floor(values) for name, values in given.items() if values is not None})
    return replace(batch, rollout_logprobs=floor(batch.rollout_logprobs), scores=scores)


def _checked(part: str, values: Float32, batch: TrainBatch) -> Float32:
    """Raise ConfigError if the values of a part, which may be a user's own, have the wrong shape or are not finite."""
    if values.shape != batch.tokens.shape:
        raise ConfigError(f"algo.{part}: shape {values.shape} was returned for {len(batch.tokens)} tokens.")
    if not np.isfinite(values).all():
        raise ConfigError(f"algo.{part}: values that are not finite were returned.")
    return values

"""KL-Cov: the tokens of highest covariance pay for leaving the old policy (arXiv 2505.22617, section 4.3).

    loss = -A r + coefficient * |log r|        at the `share` of trained tokens with the highest covariance
    loss = -A r                                elsewhere

Worked, coefficient 1: A = 1, r = 2: -2, and -2 + 0.6931 at a marked token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from rl_agent.algo.base import LossTerms
from rl_agent.algo.loss.covariance import covariances
from rl_agent.algo.ratio import log_ratio

if TYPE_CHECKING:
    from rl_agent.algo.base import LossInput
    from rl_agent.algo.batch import Bool, Float32, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class KlCovLoss:
    """See `KlCovLossConfig`."""

    share: float
    coefficient: float

    def marks(self, batch: TrainBatch, advantages: Float32) -> Bool:
        """[T] bool: what pays; at least one token, if any trains. Equal covariances pay together."""
        found = covariances(batch, advantages)
        own = found[batch.loss_mask]
        if not len(own):
            return np.zeros(len(found), dtype=np.bool_)
        count = min(len(own), max(1, round(self.share * len(own))))
        marked: Bool = batch.loss_mask & (found >= np.partition(own, len(own) - count)[len(own) - count])
        return marked

    def __call__(self, inputs: LossInput) -> LossTerms:
        """`kl_cov_fraction`: what pays."""
        log = log_ratio(inputs.logprobs, inputs.old_logprobs)
        ratio = log.exp()
        loss = -inputs.advantages * ratio
        metrics = {"ratio": ratio.detach()}
        if inputs.marked is not None:
            loss = loss + torch.where(inputs.marked, self.coefficient * log.abs(), torch.zeros_like(log))
            metrics["kl_cov_fraction"] = inputs.marked
        return LossTerms(loss=loss, metrics=metrics)

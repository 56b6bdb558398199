"""Clip-Cov: a few tokens of high covariance give no gradient, which keeps the entropy up (arXiv 2505.22617, section 4.2).

    loss = PPO's clipped surrogate; without gradient at `share` of the trained tokens, drawn from those with
    covariance_low < cov < covariance_high

The draw is by a hash of each token's covariance, so it does not depend on order or seed. Worked: of 10,000 trained tokens with
500 in the bounds, share 2e-4 drops two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from rl_agent.algo.base import LossTerms
from rl_agent.algo.loss.covariance import covariances, shuffled_rank
from rl_agent.algo.loss.ppo_clip import clipped_surrogate

if TYPE_CHECKING:
    from rl_agent.algo.base import LossInput
    from rl_agent.algo.batch import Bool, Float32, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipCovLoss:
    """See `ClipCovLossConfig`."""

    clip_low: float
    clip_high: float
    share: float
    covariance_low: float
    covariance_high: float

    def marks(self, batch: TrainBatch, advantages: Float32) -> Bool:
        """[T] bool: what gives no gradient; at least one token, if any is in the bounds."""
        found = covariances(batch, advantages)
        places = np.flatnonzero((found > self.covariance_low) & (found < self.covariance_high) & batch.loss_mask)
        count = max(1, round(self.share * int(batch.loss_mask.sum())))
        drawn = places[np.argsort(shuffled_rank(found[places]), kind="stable")[:count]]
        marked = np.zeros(len(found), dtype=np.bool_)
        marked[drawn] = True
        return marked

    def __call__(self, inputs: LossInput) -> LossTerms:
        """`clip_cov_fraction`: what was dropped."""
        log = inputs.logprobs - inputs.old_logprobs
        terms = clipped_surrogate(log, inputs.advantages, self.clip_low, self.clip_high)
        if inputs.marked is None:
            return terms
        loss = torch.where(inputs.marked, terms.loss.detach(), terms.loss)
        return LossTerms(loss=loss, metrics={**terms.metrics, "clip_cov_fraction": inputs.marked})

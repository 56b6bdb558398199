"""KL-Cov: the tokens of highest covariance pay for leaving the old policy (arXiv 2505.22617, section 4.3).

    loss = -A r + coefficient * |log r|        at the `share` of trained tokens with the highest covariance
    loss = -A r                                elsewhere

Worked, coefficient 1: A = 1, r = 2: -2, and -2 + 0.6931 at a marked token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from rl_agent.algo.base import LossTerms
from rl_agent.algo.covariance import covariances
from rl_agent.algo.ratio import log_ratio
from rl_agent.config.algo import LossConfig

if TYPE_CHECKING:
    from rl_agent.algo.base import LossInput
    from rl_agent.algo.batch import Bool, Float32, TrainBatch


@dataclass(kw_only=True)
class KlCovConfig(LossConfig):
    """Importance-weighted policy gradient with a penalty for the tokens of highest covariance."""

    share: float = 2.0e-3
    """Share of the trained tokens that are penalized."""
    coefficient: float = 1.0
    """Coefficient of |log ratio|."""

    @override
    def build(self) -> KlCov:
        return KlCov(self)


class KlCov:
    """See `KlCovConfig`."""

    def __init__(self, config: KlCovConfig) -> None:
        self.config = config

    def marks(self, batch: TrainBatch, advantages: Float32) -> Bool:
        """Mark the penalized tokens, [T] bool: at least one token, if any trains. Equal covariances are marked together."""
        found = covariances(batch, advantages)
        own = found[batch.loss_mask]
        if not len(own):
            return np.zeros(len(found), dtype=np.bool_)
        count = min(len(own), max(1, round(self.config.share * len(own))))
        marked: Bool = batch.loss_mask & (found >= np.sort(own)[-count])
        return marked

    def __call__(self, inputs: LossInput) -> LossTerms:
        """Return the loss of each token. `kl_cov_fraction`: tokens that were marked."""
        log = log_ratio(inputs.logprobs, inputs.old_logprobs)
        ratio = log.exp()
        loss = -inputs.advantages * ratio
        metrics = {"ratio": ratio.detach()}
        if inputs.marked is not None:
            loss = loss + (self.config.coefficient * log.abs()).masked_fill(~inputs.marked, 0.0)
            metrics["kl_cov_fraction"] = inputs.marked
        return LossTerms(loss=loss, metrics=metrics)

"""Covariance of advantage and log-probability: tokens with a high one drive the entropy down (arXiv 2505.22617, equation 10).

    cov_t = (A_t - mean A) * (log p_t - mean log p)        means over the trained tokens of the batch

The paper uses log p of the current policy. We use log p before the update (recomputed, or the sampler's), so that the choice depends
on the batch and not on how it is cut (law 8). In the first pass the two are equal. Worked: A = 1, -1 and log p = -1, -3: means 0 and
-2, cov = 1, 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from rl_agent.algo.batch import Float32, TrainBatch

_MIX: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
"""The multipliers of splitmix64."""


def covariances(batch: TrainBatch, advantages: Float32) -> npt.NDArray[np.float64]:
    """Return the covariance of each token: [T] float64, 0 at tokens that do not train."""
    logprobs = batch.scores.old_logprobs if batch.scores.old_logprobs is not None else batch.rollout_logprobs
    mask = batch.loss_mask
    result = np.zeros(len(mask))
    if mask.any():
        a, p = advantages[mask].astype(np.float64), logprobs[mask].astype(np.float64)
        result[mask] = (a - a.mean()) * (p - p.mean())
    return result


def shuffled_rank(values: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Hash values (splitmix64): [n] uint64. A choice by these numbers does not depend on the order of the values."""
    bits = np.ascontiguousarray(values, dtype=np.float64).view(np.uint64)
    for shift, factor in zip((np.uint64(30), np.uint64(27)), _MIX, strict=True):
        bits = (bits ^ (bits >> shift)) * factor
    return bits ^ (bits >> np.uint64(31))

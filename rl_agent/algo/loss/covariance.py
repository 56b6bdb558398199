"""Which tokens drive the entropy down: those where advantage and log-probability vary together (arXiv 2505.22617, equation 10).

    cov_t = (A_t - mean A) * (log p_t - mean log p)        means over the trained tokens of the batch

The paper takes log p of the current policy; we take it before the update (the sampler's, or recomputed), so that the choice is
one of the batch and not of how it was cut (law 8). In the first pass the two are the same. Worked: A = 1, -1 and log p = -1, -3:
means 0 and -2, cov = 1, 1.
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
    """[T] float64; 0 at tokens that do not train."""
    logprobs = batch.scores.old_logprobs if batch.scores.old_logprobs is not None else batch.rollout_logprobs
    mask = batch.loss_mask
    result = np.zeros(len(mask))
    if mask.any():
        a, p = advantages[mask].astype(np.float64), logprobs[mask].astype(np.float64)
        result[mask] = (a - a.mean()) * (p - p.mean())
    return result


def shuffled_rank(values: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """[n] uint64: numbers that look random but follow from `values` alone, so a choice by them survives any reordering."""
    bits = np.ascontiguousarray(values, dtype=np.float64).view(np.uint64)
    for shift, factor in zip((np.uint64(30), np.uint64(27)), _MIX, strict=True):
        bits = (bits ^ (bits >> shift)) * factor
    return bits ^ (bits >> np.uint64(31))

"""From one number a rollout to one a token, whitened over the batch if asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

if TYPE_CHECKING:
    import numpy.typing as npt

    from rl_agent.algo.batch import Bool, Float32, TrainBatch

VARIANCE_FLOOR: Final = 1.0e-8
"""Added to a variance before its root is divided by."""


def to_tokens(batch: TrainBatch, of_rollout: npt.NDArray[Any], *, whiten: bool) -> Float32:
    """[R] -> [T] float32: every token gets its rollout's."""
    values: Float32 = np.repeat(of_rollout.astype(np.float32)[batch.segment_rollout], batch.segment_lengths)
    white: Float32 = whitened(values, batch.loss_mask) if whiten else values
    return white


def whitened(values: npt.NDArray[Any], mask: Bool) -> Any:
    """[T] float32: minus the mean of the masked values, divided by their standard deviation (unbiased, n - 1).

    Worked: 5.5, 4, 1.5 with mask 1, 0, 1: mean 3.5, deviation 2.8284: 0.7071, 0.1768, -0.7071. Fewer than two masked values, or
    equal ones, say nothing: 0.
    """
    own = values[mask].astype(np.float64)
    if len(own) < 2 or own.min() == own.max():
        return np.zeros(len(values), dtype=np.float32)
    return ((values - own.mean()) / np.sqrt(own.var(ddof=1) + VARIANCE_FLOOR)).astype(np.float32)


def standardised(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """[n] float64: `whitened` where all values count, in place: the array given is the one that comes back."""
    own = torch.from_numpy(values)
    least, most = torch.aminmax(own) if len(values) > 1 else (own[:0], own[:0])
    if torch.equal(least, most):
        values[:] = 0.0
        return values
    own.sub_(own.mean())
    own.mul_((own.dot(own) / (len(values) - 1) + VARIANCE_FLOOR).rsqrt())
    return values

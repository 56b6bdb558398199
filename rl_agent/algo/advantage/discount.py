"""Discounted sums over trajectories, back to front, without a loop over tokens.

    S_t = x_t + d * S_{t+1}        within each trajectory

Worked: x = 1, 2, 3 and d = 0.5: S = 2.75, 3.5, 3. Computed chunk by chunk: a chunk times a triangle of powers of d, then the same
sum over the chunks' ends with d^chunk; so a trajectory of n tokens takes log(n) / log(chunk) rounds, and equals the serial sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Float64 = npt.NDArray[np.float64]

CHUNK: Final = 16
"""A small matrix product a chunk, and five rounds for a trajectory of a million tokens."""


def discounted_sums(
    values: npt.NDArray[Any], lengths: npt.NDArray[Any], discount: float, chunk: int = CHUNK
) -> Float64:
    """[n] values of trajectories that stand one after the other, [R] their lengths -> [n] float64."""
    if discount == 1.0:
        return _sums_to_the_end(values, np.asarray(lengths, dtype=np.int64))
    flipped = _forward(values[::-1].astype(np.float64), np.asarray(lengths, dtype=np.int64)[::-1], discount, chunk)
    return flipped[::-1]


def _sums_to_the_end(values: npt.NDArray[Any], lengths: npt.NDArray[np.int64]) -> Float64:
    """Without a discount, the sum up to a trajectory's end minus the sum up to here."""
    total = np.cumsum(values, dtype=np.float64)
    ends = np.cumsum(lengths)
    result: Float64 = np.repeat(np.concatenate([[0.0], total])[ends], lengths) - total + values
    return result


def _forward(values: Float64, lengths: npt.NDArray[np.int64], discount: float, chunk: int) -> Float64:
    """S_t = x_t + d * S_{t-1}."""
    chunks = -(-lengths // chunk)
    first = np.repeat((np.cumsum(chunks) - chunks) * chunk - (np.cumsum(lengths) - lengths), lengths)
    places = first + np.arange(len(values))
    padded = np.zeros(int(chunks.sum()) * chunk)
    padded[places] = values
    power = np.arange(chunk)[None, :] - np.arange(chunk)[:, None]
    triangle = np.where(power >= 0, float(discount) ** np.maximum(power, 0), 0.0)
    sums = padded.reshape(-1, chunk) @ triangle
    if int(chunks.max(initial=0)) > 1:
        ends = _forward(sums[:, -1].copy(), chunks, discount**chunk, chunk)
        before = np.concatenate([[0.0], ends[:-1]])
        before[(np.cumsum(chunks) - chunks)[chunks > 0]] = 0.0
        sums += before[:, None] * discount ** np.arange(1, chunk + 1)
    result: Float64 = sums.reshape(-1)[places]
    return result

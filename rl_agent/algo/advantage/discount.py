"""Discounted sums over trajectories, back to front, without a loop over tokens.

    S_t = x_t + d * S_{t+1}        within each trajectory

Worked: x = 1, 2, 3 and d = 0.5: S = 2.75, 3.5, 3.

Computed in blocks of `BLOCK` tokens, whatever trajectory they are of: a block times a triangle of powers of d, then what follows
each block, by a scan over the blocks' first entries. A block in which a trajectory ends is summed entry by entry instead, all such
blocks at once, and nothing is carried over an end. So the result is the serial sum's but for rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

if TYPE_CHECKING:
    import numpy.typing as npt

    Float64 = npt.NDArray[np.float64]
    Int64 = npt.NDArray[np.int64]

BLOCK: Final = 16
"""A small matrix product a block, and sixteen rounds of the scan for a trajectory of a million tokens."""


def discounted_sums(
    values: npt.NDArray[Any], lengths: npt.NDArray[Any], discount: float, block: int = BLOCK
) -> Float64:
    """[n] values of trajectories that stand one after the other, [R] their lengths -> [n] float64."""
    values = np.ascontiguousarray(values, dtype=np.float64)
    ends = np.cumsum(lengths, dtype=np.int64)[np.asarray(lengths) > 0] - 1
    full, count = len(values) // block, -(-len(values) // block)
    blocks = values[: full * block].reshape(-1, block)
    above = np.arange(block)[:, None] - np.arange(block)[None, :]
    triangle = np.where(above >= 0, discount ** np.maximum(above, 0), 0.0)
    # torch's threads, which the losses use too: NumPy's would go on waiting for work beside them, and take their time
    sums = torch.empty((count, block), dtype=torch.float64)
    torch.mm(torch.from_numpy(blocks), torch.from_numpy(triangle), out=sums[:full])
    ended = np.unique(ends // block)  # the last block, which may be short, is among them
    broken = np.zeros((len(ended), block))
    inside = ended < full
    broken[inside] = blocks[ended[inside]]
    broken[~inside, : len(values) - full * block] = values[full * block :]
    own, reach = _entry_by_entry(broken, ends, ended, discount)
    first, factors = sums[:, 0].numpy().copy(), np.full(count, discount**block, dtype=np.float64)
    first[ended], factors[ended] = own[:, 0], reach[:, 0]
    following = np.zeros(count)
    following[:-1] = _scanned(first, factors)[1:]
    sums.addr_(torch.from_numpy(following), torch.from_numpy(discount ** np.arange(block, 0.0, -1.0)))
    sums[torch.from_numpy(ended)] = torch.from_numpy(own + following[ended, None] * reach)
    result: Float64 = sums.numpy().reshape(-1)[: len(values)]
    return result


def _scanned(values: Float64, factors: Float64) -> Float64:
    """[b] each: S_i = x_i + f_i * S_{i+1}, by doubling the reach of every sum; the last factor is 0. Both arrays are overwritten."""
    step = 1
    while step < len(values) and factors.any():
        values[:-step] += factors[:-step] * values[step:]
        factors[:-step] *= factors[step:]
        step *= 2
    return values


def _entry_by_entry(values: Float64, ends: Int64, numbers: Int64, discount: float) -> tuple[Float64, Float64]:
    """[b, block] each: the sums of blocks `numbers` within themselves, and the factor of what follows the block."""
    width = values.shape[1]
    factor = np.full(values.shape, discount)
    factor[np.searchsorted(numbers, ends // width), ends % width] = 0.0
    sums, reach = np.empty_like(values), np.empty_like(values)
    carried, left = np.zeros(len(values)), np.ones(len(values))
    for entry in reversed(range(width)):
        carried = values[:, entry] + factor[:, entry] * carried
        left = left * factor[:, entry]
        sums[:, entry], reach[:, entry] = carried, left
    return sums, reach

"""Packing of segments into micro-batches under a token budget, and into attention calls. Pure NumPy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from rl_agent.algo.batch import Int32

PADDING_LIMIT: Final = 1.25
"""Maximum ratio of longest to shortest sequence within one attention call. Attention is quadratic in the length, so
more padding costs more than the saved call."""


def pack(lengths: Int32, *, budget: int, copies: int) -> list[list[int]]:
    """Pack segments into micro-batches of at most `budget` predictions. A longer segment gets a micro-batch of its own.

    The number of micro-batches is a multiple of `copies`. The k-th copy of the model takes every `copies`-th from k on.
    Copies have about the same number of tokens, and about the same work in attention, which is quadratic in the length.
    Segments too short to predict anything are left out. Within a micro-batch, the longest segments come first.
    """
    predictions = np.maximum(lengths.astype(np.int64) - 1, 0)
    order = [int(i) for i in np.argsort(-predictions, kind="stable") if predictions[i] > 0]
    limit = max(budget, int(predictions.max(initial=0)))
    count = max(1, math.ceil(int(predictions.sum()) / limit))
    while True:
        count = math.ceil(count / copies) * copies
        bins: list[list[int]] = [[] for _ in range(count)]
        load = np.zeros(count, dtype=np.int64)
        for segment in order:  # longest first, into the bin with the fewest tokens
            emptiest = int(load.argmin())
            bins[emptiest].append(segment)
            load[emptiest] += predictions[segment]
        if load.max(initial=0) <= limit:
            return _dealt(bins, predictions, copies)
        count += 1


def _dealt(bins: list[list[int]], predictions: npt.NDArray[np.int64], copies: int) -> list[list[int]]:
    """Order the bins so that all copies have the same work.

    Their token counts match already, but not their attention.
    """
    if copies == 1:
        return bins
    cost = [int((predictions[own] ** 2).sum()) for own in bins]
    shares: list[list[list[int]]] = [[] for _ in range(copies)]
    spent = [0] * copies
    for number in sorted(range(len(bins)), key=lambda n: -cost[n]):
        copy = min((k for k in range(copies) if len(shares[k]) < len(bins) // copies), key=lambda k: spent[k])
        shares[copy].append(bins[number])
        spent[copy] += cost[number]
    return [share[place] for place in range(len(bins) // copies) for share in shares]


def alike(lengths: Sequence[int]) -> Iterator[Sequence[int]]:
    """Split lengths, longest first, into runs that share one attention call, padded to the first of the run."""
    first = 0
    while first < len(lengths):
        end = first + 1
        while end < len(lengths) and lengths[end] * PADDING_LIMIT >= lengths[first]:
            end += 1
        yield lengths[first:end]
        first = end

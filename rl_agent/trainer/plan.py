"""Which segments go together in a micro-batch, under a token budget. Pure NumPy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rl_agent.algo.batch import Int32


def plan(lengths: Int32, *, budget: int, copies: int) -> list[list[int]]:
    """Spread segments over micro-batches of at most `budget` predictions (a longer segment goes alone).

    The number of micro-batches is a multiple of `copies`; the k-th copy of the model takes every `copies`-th from k on.
    Segments too short to predict anything are left out. Within a micro-batch the longest stand first.
    """
    predictions = np.maximum(lengths.astype(np.int64) - 1, 0)
    order = [int(i) for i in np.argsort(-predictions, kind="stable") if predictions[i] > 0]
    limit = max(budget, int(predictions.max(initial=0)))
    count = max(1, math.ceil(int(predictions.sum()) / limit))
    while True:
        count = math.ceil(count / copies) * copies
        bins: list[list[int]] = [[] for _ in range(count)]
        load = np.zeros(count, dtype=np.int64)
        for segment in order:  # longest first, always into the emptiest
            emptiest = int(load.argmin())
            bins[emptiest].append(segment)
            load[emptiest] += predictions[segment]
        if load.max(initial=0) <= limit:
            return bins
        count += 1

"""Sharding of a micro-batch's tokens over the ranks that share it, with its padding. Pure NumPy.

Context parallelism cuts every sequence into `2 * ranks` pieces. Rank r holds pieces r and `2 * ranks - 1 - r`. Under a
causal mask, early pieces cost less than late ones, so this gives all ranks the same work. Sequence parallelism shards
the tokens of a rank again, over the tensor-parallel ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """The ranks that share a micro-batch."""

    context_ranks: int = 1
    context_rank: int = 0
    sequence_ranks: int = 1
    """Tensor-parallel ranks with sequence parallelism, else 1."""

    @property
    def unit(self) -> int:
        """Unit of sequence lengths: every length is a multiple of it."""
        return 2 * self.context_ranks if self.context_ranks > 1 else 1

    def padded(self, sizes: Sequence[int]) -> list[int]:
        """Return the padded lengths, with an extra sequence if the total needs one."""
        lengths = [-(-size // self.unit) * self.unit for size in sizes]
        filler = 0
        while (sum(lengths) + filler) // self.context_ranks % self.sequence_ranks:
            filler += self.unit
        return [*lengths, filler] if filler else lengths

    def held(self, lengths: Sequence[int]) -> Int64:
        """Return the positions of this rank's tokens in sequences of these lengths: [t / ranks] int64."""
        return self._held(lengths, self.context_rank)

    def order(self, lengths: Sequence[int]) -> Int64:
        """Return the position of each token in the concatenation of the ranks' parts: [t] int64."""
        return np.argsort(np.concatenate([self._held(lengths, rank) for rank in range(self.context_ranks)]))

    def _held(self, lengths: Sequence[int], rank: int) -> Int64:
        if self.context_ranks == 1:
            return np.arange(sum(lengths), dtype=np.int64)
        pieces = []
        start = 0
        for length in lengths:
            size = length // self.unit
            firsts = (start + number * size for number in (rank, self.unit - 1 - rank))
            pieces += [np.arange(first, first + size, dtype=np.int64) for first in firsts]
            start += length
        return np.concatenate(pieces)

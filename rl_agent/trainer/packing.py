"""Micro-batches as the model eats them: whole segments, packed one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from rl_agent.trainer.layers import packed_sequences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.algo.batch import Int32
    from rl_agent.trainer.layers import PackedSequences


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """`t` predictions: every token of some segments but the last predicts the one after it."""

    inputs: torch.Tensor
    """[1, t] int64."""
    positions: torch.Tensor
    """[1, t] int64, from 0 in each segment."""
    labels: torch.Tensor
    """[t] int64."""
    index: torch.Tensor
    """[t] int64: where in the batch's [T] arrays each label stands."""
    segment: torch.Tensor
    """[t] int64: number of the segment within the micro-batch."""
    sequences: PackedSequences


def micro_batch(
    tokens: Int32, starts: Int32, lengths: Int32, segments: Sequence[int], device: torch.device
) -> MicroBatch:
    """Pack `segments` of the flat `tokens`. Without any segment: one prediction that the caller gives no weight."""
    if not segments:
        return _empty(device)
    sizes = [int(lengths[s]) - 1 for s in segments]
    begins = np.repeat([int(starts[s]) for s in segments], sizes)
    position = np.concatenate([np.arange(size) for size in sizes])
    source = begins + position
    flat = tokens.astype(np.int64)
    return MicroBatch(
        inputs=torch.from_numpy(flat[source])[None].to(device),
        positions=torch.from_numpy(position)[None].to(device),
        labels=torch.from_numpy(flat[source + 1]).to(device),
        index=torch.from_numpy(source + 1).to(device),
        segment=torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes)).to(device),
        sequences=packed_sequences(sizes, device),
    )


def _empty(device: torch.device) -> MicroBatch:
    zero = torch.zeros(1, dtype=torch.int64, device=device)
    return MicroBatch(
        inputs=zero[None],
        positions=zero[None],
        labels=zero,
        index=zero,  # a segment's first token: it never trains, so its weight is 0
        segment=zero,
        sequences=packed_sequences([1], device),
    )

"""Micro-batches as inputs of the model: whole segments, concatenated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from rl_agent.trainer.layers import packed_sequences
from rl_agent.trainer.shards import Shards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.algo.batch import Int32
    from rl_agent.trainer.layers import PackedSequences


ALONE: Final = Shards()
"""Sharding in which one rank holds the whole micro-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Micro-batch of `t` predictions. Each token of a segment, except the last, predicts the next one.

    Each rank that shares the micro-batch (`shards`) holds the inputs of `h` predictions. The algorithm sees all `t`.
    """

    inputs: torch.Tensor
    """[1, h] int64."""
    positions: torch.Tensor
    """[1, h] int64, from 0 in each segment."""
    labels: torch.Tensor
    """[h] int64."""
    index: torch.Tensor
    """[t] int64: position of each label in the batch's [T] arrays. Padding has 0, which never trains."""
    segment: torch.Tensor
    """[t] int64: number of the segment within the micro-batch."""
    sequences: PackedSequences


def micro_batch(
    tokens: Int32,
    starts: Int32,
    lengths: Int32,
    segments: Sequence[int],
    device: torch.device,
    shards: Shards = ALONE,
) -> MicroBatch:
    """Pack `segments` of the flat `tokens`.

    Without segments, pack one prediction, to which the caller gives no weight.
    """
    sizes = [int(lengths[s]) - 1 for s in segments] or [1]
    begins = [int(starts[s]) for s in segments] or [0]
    padded = shards.padded(sizes)
    sizes += [0] * (len(padded) - len(sizes))
    begins += [0] * (len(padded) - len(begins))
    position = np.concatenate([np.arange(length) for length in padded])
    real = position < np.repeat(sizes, padded)
    real &= bool(segments)
    source = np.where(real, np.repeat(begins, padded) + position, 0)
    label = np.where(real, source + 1, 0)
    held = shards.held(padded)
    flat = tokens.astype(np.int64)
    return MicroBatch(
        inputs=torch.from_numpy(flat[source[held]])[None].to(device),
        positions=torch.from_numpy(position[held])[None].to(device),
        labels=torch.from_numpy(flat[label[held]]).to(device),
        index=torch.from_numpy(label).to(device),
        segment=torch.from_numpy(np.repeat(np.arange(len(padded)), padded)).to(device),
        sequences=packed_sequences(padded, device, shards),
    )

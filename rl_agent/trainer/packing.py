"""From a batch to micro-batches: whole segments, packed one after the other, under a token budget."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from rl_agent.algo.batch import TrainBatch
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


def select_rollouts(batch: TrainBatch, rollouts: Int32) -> tuple[TrainBatch, Int32]:
    """The part of a batch that belongs to `rollouts`, and where its tokens stand in the whole ([t] int32)."""
    chosen = np.isin(batch.segment_rollout, rollouts)
    tokens = np.flatnonzero(np.repeat(chosen, batch.segment_lengths)).astype(np.int32)
    number = np.full(len(batch.rewards), -1, dtype=np.int32)
    number[rollouts] = np.arange(len(rollouts), dtype=np.int32)
    part = TrainBatch(
        tokens=batch.tokens[tokens],
        loss_mask=batch.loss_mask[tokens],
        rollout_logprobs=batch.rollout_logprobs[tokens],
        weight_versions=batch.weight_versions[tokens],
        segment_lengths=batch.segment_lengths[chosen],
        segment_rollout=number[batch.segment_rollout[chosen]],
        rewards=batch.rewards[rollouts],
        rollout_group=batch.rollout_group[rollouts],
    )
    return part, tokens

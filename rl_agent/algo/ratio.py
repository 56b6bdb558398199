"""Ratios of probabilities that stay finite, and sums over the tokens of a sequence: what losses and corrections share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from torch import Tensor

LOG_RATIO_LIMIT: Final = 20.0
"""exp(20) is 5e8: beyond every sensible bound, and far from the float32 overflow that would make the gradient NaN."""

LOGPROB_FLOOR: Final = -1.0e4
"""Stands for a probability of zero: finite, so that 0 * log(0) is 0 and not NaN."""


def log_ratio(logprobs: Tensor, other: Tensor) -> Tensor:
    """[t]: log(p / q) within +-20; beyond, its gradient is 0."""
    return (logprobs - other).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def sequence_sum(values: Tensor, mask: Tensor, sequence: Tensor) -> Tensor:
    """[t]: for each token the sum of `values` over the masked tokens of its sequence; accumulated in float64."""
    kept = torch.where(mask, values, torch.zeros_like(values)).double()
    sums = kept.new_zeros(_count(sequence)).index_add(0, sequence, kept)
    return sums[sequence].to(values.dtype)


def sequence_mean(values: Tensor, mask: Tensor, sequence: Tensor) -> Tensor:
    """[t]: for each token the mean of `values` over the masked tokens of its sequence; 0 where there is none."""
    counts = torch.zeros(_count(sequence), dtype=torch.float64, device=values.device)
    counts = counts.index_add(0, sequence, mask.double()).clamp(min=1.0)
    kept = torch.where(mask, values, torch.zeros_like(values)).double()
    sums = torch.zeros_like(counts).index_add(0, sequence, kept)
    return (sums / counts)[sequence].to(values.dtype)


def sequence_max(values: Tensor, mask: Tensor, sequence: Tensor) -> Tensor:
    """[t]: for each token the largest of `values` over the masked tokens of its sequence; 0 where there is none."""
    lowest = torch.full((_count(sequence),), -torch.inf, dtype=values.dtype, device=values.device)
    kept = torch.where(mask, values, torch.full_like(values, -torch.inf))
    largest = lowest.scatter_reduce(0, sequence, kept, "amax")
    return torch.where(largest.isinf(), torch.zeros_like(largest), largest)[sequence]


def _count(sequence: Tensor) -> int:
    return int(sequence.max()) + 1 if len(sequence) else 0

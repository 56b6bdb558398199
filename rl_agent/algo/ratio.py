"""Ratios of probabilities that stay finite, and sums over the tokens of a sequence: what losses and corrections share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from typing_extensions import override

if TYPE_CHECKING:
    from torch import Tensor

LOG_RATIO_LIMIT: Final = 20.0
"""exp(20) is 5e8: beyond every sensible bound, and far from the float32 overflow that would make the gradient NaN."""

LOGPROB_FLOOR: Final = -1.0e4
"""Stands for a probability of zero: finite, so that 0 * log(0) is 0 and not NaN."""


def log_ratio(logprobs: Tensor, other: Tensor) -> Tensor:
    """[t]: log(p / q) within +-20; beyond, its gradient is 0. Nothing flows into `other`, a policy that stands still."""
    return _LogRatio.apply(logprobs, other)  # type: ignore[no-any-return, no-untyped-call]


class _LogRatio(torch.autograd.Function):
    """Recorded step by step, the bounds alone would cost four passes in backward."""

    @override
    @staticmethod
    def forward(ctx: Any, logprobs: Tensor, other: Tensor) -> Tensor:
        free = logprobs - other
        ctx.free = lie_within(free, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        if ctx.free:
            return free
        bounded = free.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(bounded == free)
        return bounded

    @override
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        if ctx.free:
            return grads[0], None
        (inside,) = ctx.saved_tensors
        return torch.where(inside, grads[0], 0.0), None


def floored(logprobs: Tensor) -> Tensor:
    """[t]: at least `LOGPROB_FLOOR`; below, the gradient is 0."""
    return logprobs if lie_within(logprobs, LOGPROB_FLOOR, torch.inf) else logprobs.clamp(min=LOGPROB_FLOOR)


def lie_within(values: Tensor, low: float, high: float) -> bool:
    """Whether nothing has to be bounded, which nearly always is so: looking costs a fraction of bounding.

    False where there is a NaN, and where looking would make a GPU wait.
    """
    if values.device.type != "cpu" or not values.numel():
        return False
    least, most = torch.aminmax(values.detach())
    return low <= least.item() and most.item() <= high


def floats(mask: Tensor) -> Tensor:
    """[t] bool -> [t] float32 of 0 and 1. Bytes are converted eight times as fast as bools are, alone or in a product."""
    return mask.view(torch.uint8).float()


def likelihood_loss(logprobs: Tensor, factors: Tensor) -> Tensor:
    """[t]: `-factor * floored(logprobs)`; nothing flows into the factors."""
    return _LikelihoodLoss.apply(logprobs, factors)  # type: ignore[no-any-return, no-untyped-call]


class _LikelihoodLoss(torch.autograd.Function):
    """The gradient is minus the factor, and 0 below the floor: written down, which costs half of recording the steps."""

    @override
    @staticmethod
    def forward(ctx: Any, logprobs: Tensor, factors: Tensor) -> Tensor:
        slope = -factors
        if lie_within(logprobs, LOGPROB_FLOOR, torch.inf):
            loss = logprobs * slope
        else:
            loss = logprobs.clamp(min=LOGPROB_FLOOR).mul_(slope)
            slope.mul_(logprobs >= LOGPROB_FLOOR)
        ctx.save_for_backward(slope)
        return loss

    @override
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return grads[0] * slope, None


def sequence_sum(values: Tensor, mask: Tensor, sequence: Tensor) -> Tensor:
    """[t]: for each token the sum of `values` over the masked tokens of its sequence; accumulated in float64."""
    return _OfSequence.apply(values, mask, sequence, False)  # type: ignore[no-any-return, no-untyped-call]


def sequence_mean(values: Tensor, mask: Tensor, sequence: Tensor) -> Tensor:
    """[t]: for each token the mean of `values` over the masked tokens of its sequence; 0 where there is none."""
    return _OfSequence.apply(values, mask, sequence, True)  # type: ignore[no-any-return, no-untyped-call]


class _OfSequence(torch.autograd.Function):
    """Sum (or mean) of masked values, at every token: as a matrix it is symmetric but for the mask, so backward is forward."""

    @override
    @staticmethod
    def forward(ctx: Any, values: Tensor, mask: Tensor, sequence: Tensor, mean: bool) -> Tensor:
        starts, ends = _runs(sequence)
        ids, inverse = torch.unique(sequence[starts], return_inverse=True)
        counts = _sums(mask, starts, ends, inverse, len(ids)).clamp_(min=1.0) if mean else None
        ctx.save_for_backward(mask, starts, ends, inverse)
        ctx.counts, ctx.sequences = counts, len(ids)
        return _spread(values, mask, starts, ends, inverse, counts, len(ids), before=True)

    @override
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        mask, starts, ends, inverse = ctx.saved_tensors
        spread = _spread(grads[0], mask, starts, ends, inverse, ctx.counts, ctx.sequences, before=False)
        return spread.mul_(floats(mask)), None, None, None


def _runs(sequence: Tensor) -> tuple[Tensor, Tensor]:
    """Where runs of equal numbers start and end, [runs] int64 each."""
    if not len(sequence):
        return sequence[:0], sequence[:0]
    if sequence.device.type == "cpu":  # NumPy's is three times as fast there
        numbers = sequence.numpy()
        changes = torch.from_numpy(np.flatnonzero(numbers[1:] != numbers[:-1]))
    else:
        changes = (sequence[1:] != sequence[:-1]).nonzero()[:, 0]
    starts = torch.cat([sequence.new_zeros(1), changes + 1])
    return starts, torch.cat([starts[1:], starts.new_full((1,), len(sequence))])


def _spread(
    values: Tensor,
    mask: Tensor,
    starts: Tensor,
    ends: Tensor,
    inverse: Tensor,
    counts: Tensor | None,
    sequences: int,
    *,
    before: bool,
) -> Tensor:
    """`before`: only masked values are summed. The tokens of a sequence stand in runs `[start, end)`."""
    chosen = torch.where(mask, values, 0.0) if before else values
    sums = _sums(chosen, starts, ends, inverse, sequences)
    of_run = (sums if counts is None else sums / counts)[inverse].to(values.dtype)
    if values.device.type == "cpu":  # NumPy's is twenty times as fast there
        return torch.from_numpy(np.repeat(of_run.numpy(), (ends - starts).numpy()))
    return of_run.repeat_interleave(ends - starts, output_size=len(values))


def _sums(values: Tensor, starts: Tensor, ends: Tensor, inverse: Tensor, sequences: int) -> Tensor:
    """[sequences] float64."""
    if values.device.type == "cpu" and len(starts):  # NumPy's is six times as fast there
        counted = np.int32 if values.dtype is torch.bool else np.float64  # half the time of int64
        of_run = torch.from_numpy(np.add.reduceat(values.detach().numpy(), starts.numpy(), dtype=counted)).double()
    else:
        at_ends = values.cumsum(0, dtype=torch.float64)[ends - 1]
        of_run = at_ends.diff(prepend=at_ends.new_zeros(1))
    return of_run.new_zeros(sequences).index_add_(0, inverse, of_run)


def sequence_max(values: Tensor, mask: Tensor, sequence: Tensor) -> Tensor:
    """[t]: for each token the largest of `values` over the masked tokens of its sequence; 0 where there is none."""
    lowest = torch.full((_count(sequence),), -torch.inf, dtype=values.dtype, device=values.device)
    kept = torch.where(mask, values, torch.full_like(values, -torch.inf))
    largest = lowest.scatter_reduce(0, sequence, kept, "amax")
    return torch.where(largest.isinf(), torch.zeros_like(largest), largest)[sequence]


def _count(sequence: Tensor) -> int:
    return int(sequence.max()) + 1 if len(sequence) else 0

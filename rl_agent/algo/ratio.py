"""Ratios of probabilities that stay finite, and sums over the tokens of a sequence.

Only tensor methods are used, so that the configs beside the formulas can be imported without torch.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from torch import Tensor

    from rl_agent.algo.base import CorrectionInput

LOG_RATIO_LIMIT: Final = 20.0
"""exp(20) is 5e8: beyond every sensible bound, and far from the float32 overflow that would make the gradient NaN."""

LOGPROB_FLOOR: Final = -1.0e4
"""Stands for a probability of zero. It is finite, so that 0 * log(0) is 0 and not NaN."""


class WeightLevel(StrEnum):
    """Unit over which an importance weight is computed."""

    token = "token"  # noqa: S105  as in text
    sequence = "sequence"
    """The product over a sequence's tokens."""
    geometric = "geometric"
    """The geometric mean over a sequence's tokens."""


def bounded(log: Tensor) -> Tensor:
    """Clamp log-ratios to +-20; the gradient is 0 beyond."""
    return log.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def log_ratio(logprobs: Tensor, other: Tensor) -> Tensor:
    """Return log(p / q), bounded: [t]. No gradient flows into `other`."""
    return bounded(logprobs - other.detach())


def floored(logprobs: Tensor) -> Tensor:
    """Clamp log-probabilities to at least `LOGPROB_FLOOR`; the gradient is 0 below."""
    return logprobs.clamp(min=LOGPROB_FLOOR)


def sequence_sum(values: Tensor, mask: Tensor, sequence: Tensor) -> Tensor:
    """Give each token the sum of `values` over the masked tokens of its sequence: [t]. Accumulates in float64."""
    return _sums(values, mask, sequence)[sequence].to(values.dtype)


def sequence_mean(values: Tensor, mask: Tensor, sequence: Tensor) -> Tensor:
    """Give each token the mean of `values` over the masked tokens of its sequence: [t]; 0 if there is none."""
    counts = _sums(values.new_ones(len(values)), mask, sequence).clamp(min=1.0)
    return (_sums(values, mask, sequence) / counts)[sequence].to(values.dtype)


def sequence_max(values: Tensor, mask: Tensor, sequence: Tensor) -> Tensor:
    """Give each token the largest of `values` over the masked tokens of its sequence: [t]; 0 if there is none."""
    lowest = values.new_full((_count(sequence),), -float("inf"))
    largest = lowest.scatter_reduce(0, sequence, values.masked_fill(~mask, -float("inf")), "amax")
    return largest.masked_fill(largest.isinf(), 0.0)[sequence]


def _sums(values: Tensor, mask: Tensor, sequence: Tensor) -> Tensor:
    """Return the sum of the masked values of each sequence: [sequences] float64."""
    own = values.masked_fill(~mask, 0.0).double()
    return own.new_zeros(_count(sequence)).index_add(0, sequence, own)


def _count(sequence: Tensor) -> int:
    return int(sequence.max()) + 1 if len(sequence) else 0


def at_level(inputs: CorrectionInput, level: WeightLevel) -> Tensor:
    """Return the log importance weight of each token at a level: [t], bounded.

    Worked: log weights 0.5, -0.5, 1 of one sequence: product 1, geometric mean 1/3 at each token.
    """
    if level is WeightLevel.token:
        return inputs.log_weights
    gather = sequence_sum if level is WeightLevel.sequence else sequence_mean
    return bounded(gather(inputs.log_weights, inputs.loss_mask, inputs.sequence))


def approximated(logprobs: Tensor, rollout_logprobs: Tensor, staleness: Tensor) -> Tensor:
    """Interpolate the proximal policy between sampler and current policy (AReaL's `prox_approx`): [t] float32.

        log p_proximal = log p_sampler + a * (log p - log p_sampler)        a = (v_proximal - v_sampler) / (v - v_sampler)

    v counts weight versions. The update leads from v_proximal to v = v_proximal + 1. Worked: sampled 2 versions before the trainer's:
    a = 2 / 3; a fresh token: a = 0. No gradient flows. `staleness` is the number of versions that the token lags behind.
    """
    lag = staleness.clamp(min=0).to(logprobs.dtype)
    return rollout_logprobs + lag / (lag + 1.0) * (logprobs.detach() - rollout_logprobs)

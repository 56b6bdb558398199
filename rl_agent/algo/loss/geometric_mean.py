"""GMPO: the geometric mean of clipped token ratios, which no single token can blow up (arXiv 2507.20673, equation 4).

    c_t = log r_t, clipped to at most clip_high where A > 0 and to at least -clip_low where A <= 0
    loss = -A * exp(mean of c_t over the trained tokens of the segment)

Worked: r = 0.5, 1, e and A = 1, bounds 0.4: c = -0.6931, 0, 0.4, mean -0.0977: -0.9069. A sequence is a segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rl_agent.algo.base import LossTerms
from rl_agent.algo.ratio import log_ratio, sequence_mean

if TYPE_CHECKING:
    from rl_agent.algo.base import LossInput


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometricMeanLoss:
    """See `GeometricMeanLossConfig`."""

    clip_low: float
    clip_high: float

    def __call__(self, inputs: LossInput) -> LossTerms:
        """`ratio` is the sequence's; `clip_fraction`: tokens whose own ratio is bounded."""
        log = log_ratio(inputs.logprobs, inputs.old_logprobs)
        pessimistic = torch.where(inputs.advantages > 0, log.clamp(max=self.clip_high), log.clamp(min=-self.clip_low))
        ratio = sequence_mean(pessimistic, inputs.loss_mask, inputs.segment).exp()
        metrics = {"clip_fraction": (pessimistic != log).detach(), "ratio": ratio.detach()}
        return LossTerms(loss=-inputs.advantages * ratio, metrics=metrics)

"""GSPO: one ratio a sequence, the geometric mean of its tokens' (arXiv 2507.18071, equations 5-7 and 14).

    s = exp(mean of log r over the trained tokens of the segment)
    sequence: loss = max(-A s, -A clip(s))
    token:    the same with s_t = stop(s) * p_t / stop(p_t): same value, but each token's gradient is its own

A sequence is a segment: a rollout of several is several sequences. Worked: r = 0.5, 1, 1.5: s = 0.75^(1/3) = 0.9086; with A = 1,
-1, 2: -0.9086, 0.9086, -1.8171.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rl_agent.algo.loss.ppo_clip import clipped_surrogate
from rl_agent.algo.ratio import floored, log_ratio, sequence_mean
from rl_agent.config.algo_loss import RatioLevel

if TYPE_CHECKING:
    from rl_agent.algo.base import LossInput, LossTerms


@dataclass(frozen=True, slots=True, kw_only=True)
class GspoLoss:
    """See `GspoLossConfig`."""

    clip_low: float
    clip_high: float
    level: RatioLevel

    def __call__(self, inputs: LossInput) -> LossTerms:
        """`ratio` and `clip_fraction` are of sequences, counted once a token."""
        of_token = log_ratio(inputs.logprobs, inputs.old_logprobs)
        if self.level is RatioLevel.sequence:
            of_sequence = sequence_mean(of_token, inputs.loss_mask, inputs.segment)
        else:
            mean = sequence_mean(of_token.detach(), inputs.loss_mask, inputs.segment)
            own = floored(inputs.logprobs)
            of_sequence = mean + (own - own.detach())
        return clipped_surrogate(of_sequence, inputs.advantages, self.clip_low, self.clip_high)

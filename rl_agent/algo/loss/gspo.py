"""GSPO: one ratio per sequence, the geometric mean of its tokens' (arXiv 2507.18071, equations 5-7 and 14).

    s = exp(mean of log r over the trained tokens of the segment)
    sequence: loss = max(-A s, -A clip(s))
    token:    the same with s_t = stop(s) * p_t / stop(p_t): same value, but each token's gradient is its own

A sequence is a segment, so a rollout of several segments is several sequences. Worked: r = 0.5, 1, 1.5: s = 0.75^(1/3) = 0.9086;
with A = 1, -1, 2: -0.9086, 0.9086, -1.8171.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from typing_extensions import override

from rl_agent.algo.loss.ppo_clip import clipped_surrogate
from rl_agent.algo.ratio import floored, log_ratio, sequence_mean
from rl_agent.config.algo import LossConfig

if TYPE_CHECKING:
    from rl_agent.algo.base import LossInput, LossTerms


class RatioLevel(StrEnum):
    """Unit whose ratio is clipped."""

    sequence = "sequence"
    """One ratio per segment."""
    token = "token"  # noqa: S105  as in text
    """One ratio per segment whose gradient flows through each token alone (GSPO-token)."""


@dataclass(kw_only=True)
class GspoConfig(LossConfig):
    """PPO's surrogate with one ratio per sequence, the geometric mean of its tokens' ratios."""

    clip_low: float = 3.0e-4
    """Distance below 1 at which the sequence's ratio is clipped."""
    clip_high: float = 4.0e-4
    """Distance above 1 at which the sequence's ratio is clipped."""
    level: RatioLevel = RatioLevel.sequence

    @override
    def build(self) -> Gspo:
        return Gspo(self)


class Gspo:
    """See `GspoConfig`."""

    def __init__(self, config: GspoConfig) -> None:
        self.config = config

    def __call__(self, inputs: LossInput) -> LossTerms:
        """Return the loss of each token. `ratio` and `clip_fraction` are of sequences, counted once per token."""
        log = log_ratio(inputs.logprobs, inputs.old_logprobs)
        log = sequence_mean(log, inputs.loss_mask, inputs.segment)
        if self.config.level is RatioLevel.token:
            own = floored(inputs.logprobs)
            log = log.detach() + (own - own.detach())
        return clipped_surrogate(log, inputs.advantages, self.config.clip_low, self.config.clip_high)

"""GMPO: the geometric mean of clipped token ratios, which no single token can blow up (arXiv 2507.20673, equation 4).

    c_t = log r_t, clipped to at most clip_high where A > 0 and to at least -clip_low where A <= 0
    loss = -A * exp(mean of c_t over the trained tokens of the segment)

A sequence is a segment. Worked: r = 0.5, 1, e and A = 1, bounds 0.4: c = -0.6931, 0, 0.4, mean -0.0977: -0.9069.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from rl_agent.algo.base import LossTerms
from rl_agent.algo.ratio import log_ratio, sequence_mean
from rl_agent.config.algo import LossConfig

if TYPE_CHECKING:
    from rl_agent.algo.base import LossInput


@dataclass(kw_only=True)
class GeometricMeanConfig(LossConfig):
    """GMPO: the geometric mean of clipped token ratios."""

    clip_low: float = 0.4
    """Lower bound of a token's *log* ratio, negated."""
    clip_high: float = 0.4
    """Upper bound of a token's *log* ratio."""

    @override
    def build(self) -> GeometricMean:
        return GeometricMean(self)


class GeometricMean:
    """See `GeometricMeanConfig`."""

    def __init__(self, config: GeometricMeanConfig) -> None:
        self.config = config

    def __call__(self, inputs: LossInput) -> LossTerms:
        """Return the loss of each token. `ratio`: of the sequence. `clip_fraction`: tokens whose own ratio is clipped."""
        log = log_ratio(inputs.logprobs, inputs.old_logprobs)
        clipped = log.clamp(max=self.config.clip_high).where(
            inputs.advantages > 0, log.clamp(min=-self.config.clip_low)
        )
        ratio = sequence_mean(clipped, inputs.loss_mask, inputs.segment).exp()
        metrics = {"clip_fraction": clipped != log, "ratio": ratio.detach()}
        return LossTerms(loss=-inputs.advantages * ratio, metrics=metrics)

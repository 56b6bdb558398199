"""REINFORCE: `-A log p` (Williams 1992). The gap to the sampler is left to the correction.

Worked: A = 1, -1, 2 and log p = -0.5, -1, -1.5: 0.5, -1, 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from rl_agent.algo.base import LossTerms
from rl_agent.algo.ratio import floored, log_ratio
from rl_agent.config.algo import LossConfig

if TYPE_CHECKING:
    from rl_agent.algo.base import LossInput


@dataclass(kw_only=True)
class ReinforceConfig(LossConfig):
    """Plain policy gradient."""

    @override
    def build(self) -> Reinforce:
        return Reinforce(self)


class Reinforce:
    """See `ReinforceConfig`."""

    def __init__(self, config: ReinforceConfig) -> None:
        self.config = config

    def __call__(self, inputs: LossInput) -> LossTerms:
        """Return the loss of each token. `ratio` is a metric only."""
        ratio = log_ratio(inputs.logprobs.detach(), inputs.old_logprobs).exp()
        return LossTerms(loss=-inputs.advantages * floored(inputs.logprobs), metrics={"ratio": ratio})

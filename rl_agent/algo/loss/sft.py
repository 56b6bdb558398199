"""Negative log-likelihood, weighted by the advantage: `-A log p`.

With `advantage=constant` this is supervised fine-tuning. Worked: A = 1, log p = -0.5 gives 0.5; its gradient is -1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from rl_agent.algo.base import LossTerms
from rl_agent.algo.ratio import floored
from rl_agent.config.algo import LossConfig

if TYPE_CHECKING:
    from rl_agent.algo.base import LossInput


@dataclass(kw_only=True)
class SftConfig(LossConfig):
    """Negative log-likelihood."""

    @override
    def build(self) -> Sft:
        return Sft(self)


class Sft:
    """See `SftConfig`."""

    def __init__(self, config: SftConfig) -> None:
        self.config = config

    def __call__(self, inputs: LossInput) -> LossTerms:
        """Return the loss of each token. `nll`: the unweighted negative log-likelihood."""
        logprobs = floored(inputs.logprobs)
        return LossTerms(loss=-inputs.advantages * logprobs, metrics={"nll": -logprobs.detach()})

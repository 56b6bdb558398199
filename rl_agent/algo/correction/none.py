"""No correction: every token has weight 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from rl_agent.algo.base import CorrectionTerms
from rl_agent.config.algo import CorrectionConfig, Proximal

if TYPE_CHECKING:
    from rl_agent.algo.base import CorrectionInput


@dataclass(kw_only=True)
class NoCorrectionConfig(CorrectionConfig):
    """Every token has weight 1."""

    corrects = False

    proximal: Proximal = Proximal.rollout

    @override
    def build(self) -> NoCorrection:
        return NoCorrection(self)


class NoCorrection:
    """See `NoCorrectionConfig`."""

    def __init__(self, config: NoCorrectionConfig) -> None:
        self.config = config

    def __call__(self, inputs: CorrectionInput) -> CorrectionTerms:
        """Return ones."""
        ones = inputs.log_weights.new_ones(len(inputs.log_weights))
        return CorrectionTerms(weights=ones, corrected=ones == 0)

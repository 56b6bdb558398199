"""No correction: every token counts fully."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rl_agent.algo.base import CorrectionTerms

if TYPE_CHECKING:
    from rl_agent.algo.base import CorrectionInput
    from rl_agent.config.algo_parts import Proximal


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCorrection:
    """See `NoCorrectionConfig`."""

    proximal: Proximal

    def __call__(self, inputs: CorrectionInput) -> CorrectionTerms:
        """Ones."""
        ones = torch.ones_like(inputs.log_weights)
        return CorrectionTerms(weights=ones, corrected=torch.zeros_like(inputs.loss_mask))

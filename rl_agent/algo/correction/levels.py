"""Log importance weights of tokens, sequences, or their geometric means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_agent.algo.ratio import LOG_RATIO_LIMIT, sequence_mean, sequence_sum
from rl_agent.config.algo_parts import WeightLevel

if TYPE_CHECKING:
    from torch import Tensor

    from rl_agent.algo.base import CorrectionInput


def at_level(inputs: CorrectionInput, level: WeightLevel) -> Tensor:
    """[t] float32, bounded to +-20: worked, log weights 0.5, -0.5, 1 of one sequence: sum 1, mean 1/3 at each token."""
    if level is WeightLevel.token:
        return inputs.log_weights
    gather = sequence_sum if level is WeightLevel.sequence else sequence_mean
    gathered = gather(inputs.log_weights, inputs.loss_mask, inputs.sequence)
    return gathered.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)

"""Every trained token counts the same: `w = mask / sum(mask)`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from rl_agent.algo.ratio import floats

if TYPE_CHECKING:
    from rl_agent.algo.batch import Float32, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenMean:
    """See `TokenMeanConfig`."""

    def __call__(self, batch: TrainBatch) -> Float32:
        """[T] float32; all zero in a batch without a trained token."""
        trained = max(1, int(np.count_nonzero(batch.loss_mask)))
        return floats(torch.from_numpy(batch.loss_mask)).mul_(1.0 / trained).numpy()

"""Every segment counts the same: `w = mask / (trained tokens of the segment * segments)`.

A rollout of more segments weighs more; `rollout_mean` is the same for rollouts. Worked: segments with 3 and 1 trained tokens: w =
1/6, 1/6, 1/6, 1/2. GRPO's and GSPO's own (arXiv 2402.03300, 2507.18071), where a rollout is one sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from rl_agent.algo.ratio import floats

if TYPE_CHECKING:
    from rl_agent.algo.batch import Float32, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceMean:
    """See `SequenceMeanConfig`."""

    def __call__(self, batch: TrainBatch) -> Float32:
        """[T] float32; segments without a trained token are not counted."""
        trained = batch.trained_of_segments()
        segments = max(1, int((trained > 0).sum()))
        of_segment = (1.0 / (np.maximum(trained, 1) * segments)).astype(np.float32)
        weights = torch.from_numpy(np.repeat(of_segment, batch.segment_lengths))
        return weights.mul_(floats(torch.from_numpy(batch.loss_mask))).numpy()

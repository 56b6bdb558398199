"""The [T] arrays of one pass on the device, and their part in the loss of one micro-batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rl_agent.algo.base import LossInput

if TYPE_CHECKING:
    from rl_agent.algo.batch import Float32, Int32, Prepared, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Arrays of a pass, see `LossInput`. An array is None if no part of the algorithm needs it."""

    rollout_logprobs: torch.Tensor
    old_logprobs: torch.Tensor
    advantages: torch.Tensor
    weights: torch.Tensor
    loss_mask: torch.Tensor
    staleness: torch.Tensor
    reference_logprobs: torch.Tensor | None
    teacher_logprobs: torch.Tensor | None
    correction: torch.Tensor | None
    corrected: torch.Tensor | None
    marked: torch.Tensor | None
    kl_coefficient: float

    def loss_input(self, at: torch.Tensor, logprobs: torch.Tensor, segment: torch.Tensor) -> LossInput:
        """Return the inputs of the loss. `at`: [t] positions of the micro-batch's predictions in the [T] arrays."""
        return LossInput(
            logprobs=logprobs,
            old_logprobs=self.old_logprobs[at],
            advantages=self.advantages[at],
            loss_mask=self.loss_mask[at],
            segment=segment,
            rollout_logprobs=self.rollout_logprobs[at],
            staleness=self.staleness[at],
            reference_logprobs=_at(self.reference_logprobs, at),
            teacher_logprobs=_at(self.teacher_logprobs, at),
            correction=_at(self.correction, at),
            corrected=_at(self.corrected, at),
            marked=_at(self.marked, at),
            kl_coefficient=self.kl_coefficient,
        )


def targets(
    ready: Prepared, part: TrainBatch, own: Int32, weights: Float32, *, version: int, device: torch.device
) -> Targets:
    """Copy the arrays of `part` to the device.

    `own`: its positions in the prepared batch. `version`: that of the current weights.
    """

    def put(values: Any) -> torch.Tensor | None:
        return None if values is None else torch.from_numpy(values).to(device)

    def cut(values: Any) -> torch.Tensor | None:
        return None if values is None else put(values[own])

    versions = part.weight_versions
    staleness = np.where(versions >= 0, version - versions, -1).astype(np.int32)
    return Targets(
        rollout_logprobs=torch.from_numpy(part.rollout_logprobs).to(device),
        old_logprobs=torch.from_numpy(ready.old_logprobs[own]).to(device),
        advantages=torch.from_numpy(ready.advantages[own]).to(device),
        weights=torch.from_numpy(weights).to(device),
        loss_mask=torch.from_numpy(part.loss_mask).to(device),
        staleness=torch.from_numpy(staleness).to(device),
        reference_logprobs=put(part.scores.reference_logprobs),
        teacher_logprobs=put(part.scores.teacher_logprobs),
        correction=cut(ready.correction),
        corrected=cut(ready.corrected),
        marked=cut(ready.marked),
        kl_coefficient=ready.kl_coefficient,
    )


def _at(values: torch.Tensor | None, places: torch.Tensor) -> torch.Tensor | None:
    return None if values is None else values[places]

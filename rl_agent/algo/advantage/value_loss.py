"""The critic's loss: half the squared error, clipped like the policy's ratio (arXiv 1707.06347, section 5; 2005.12729).

    loss = 0.5 * max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2)

Worked, c = 0.2: V = 1, V_old = 0.5, R = 2: clipped 0.7, 0.5 * max(1, 1.69) = 0.845, and no gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def value_loss(values: Tensor, old_values: Tensor, targets: Tensor, clip: float | None) -> Tensor:
    """[t] float32 each -> [t] float32, not weighted."""
    free = (values - targets).square()
    if clip is None:
        return 0.5 * free
    near = old_values + (values - old_values).clamp(-clip, clip)
    return 0.5 * torch.maximum(free, (near - targets).square())

"""Penalties for a share of a rollout's turns or tool calls that went wrong.

    penalty = -factor * wrong / all        0 for a rollout without any

Worked, factor 0.2: 1 of 4 turns ill-formed: -0.05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rl_agent.algo.batch import Float32, Int32


def share_penalty(wrong: Int32, total: Int32, factor: float) -> Float32:
    """[R] int32 each -> [R] float32, never positive."""
    penalty: Float32 = (-factor * np.minimum(wrong, total) / np.maximum(total, 1)).astype(np.float32)
    return penalty

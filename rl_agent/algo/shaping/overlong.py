"""The soft penalty for overlong rollouts (DAPO, arXiv 2503.14476, equation 13).

    penalty = min(-(length - (limit - buffer)) / buffer * factor, 0)

Worked, limit 100, buffer 20, factor 1: lengths 70, 90, 100, 110: 0, -0.5, -1, -1.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rl_agent.algo.batch import Float32, Int32


def overlong_penalty(lengths: Int32, *, limit: float, buffer: float, factor: float) -> Float32:
    """[R] int32 tokens -> [R] float32, never positive."""
    over = lengths.astype(np.float64) - (limit - buffer)
    return np.minimum(-over / buffer * factor, 0.0).astype(np.float32)

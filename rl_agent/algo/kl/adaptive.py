"""A coefficient that keeps a divergence at its target (arXiv 1909.08593, section 2.2).

    b' = b * (1 + clip(measured / target - 1, -0.2, 0.2) * rollouts / horizon)

Worked: b = 0.2, measured 0.2, target 0.1, horizon 100, 10 rollouts: 0.2 * 1.02.
"""

from __future__ import annotations

from typing import Final

LIMIT: Final = 0.2
"""The paper's bound on the relative error."""


def adapted(coefficient: float, measured: float, *, target: float, horizon: int, rollouts: int) -> float:
    """The next coefficient."""
    error = min(max(measured / target - 1.0, -LIMIT), LIMIT)
    return coefficient * (1.0 + error * rollouts / horizon)

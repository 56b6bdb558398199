"""How the work of a function grows with its input, in processor time: wall-clock time says nothing beside other work."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def growth(work: Callable[[int], object], n: int) -> float:
    """How many times longer it takes for 4 `n` than for `n`: about 4 where it is linear, 16 where it is quadratic."""
    return _fastest(work, 4 * n) / _fastest(work, n)


def _fastest(work: Callable[[int], object], n: int) -> float:
    times = []
    for _ in range(5):
        started = time.thread_time()
        work(n)
        times.append(time.thread_time() - started)
    return max(min(times), 1e-4)

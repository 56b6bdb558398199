"""An agent CLI that takes as long as agents of real tasks do, scaled down: for `benchmarks/overlap.py`."""

from __future__ import annotations

import asyncio
import math
import random
from typing import TYPE_CHECKING, Final

from rl_agent.harnesses.codex import Codex

if TYPE_CHECKING:
    from rl_agent.harnesses.base import Budget, HarnessResult
    from rl_agent.sandboxes.base import Sandbox
    from rl_agent.tasks.task import Task

SCALE: Final = 1 / 30
"""Of real time: a minute becomes two seconds."""
MEDIAN_S, P95_S, BUDGET_S = 360.0 * SCALE, 1500.0 * SCALE, 1800.0 * SCALE
SIGMA: Final = math.log(P95_S / MEDIAN_S) / 1.6449


class DelayedCodex(Codex):
    """Codex after a log-normal pause (median 12 s, 95th percentile 50 s, cut at 60 s)."""

    async def run(self, sandbox: Sandbox, *, task: Task, base_url: str, token: str, budget: Budget) -> HarnessResult:
        """See `Harness.run`. The pause is drawn anew for each rollout."""
        pause = min(BUDGET_S, MEDIAN_S * math.exp(SIGMA * random.gauss(0.0, 1.0)))
        await asyncio.sleep(pause)
        return await super().run(sandbox, task=task, base_url=base_url, token=token, budget=budget)

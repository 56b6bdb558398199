"""Finds tasks that turn out to be broken while training: their set-up fails (before the agent or before grading), or equal work is judged differently."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

from rl_agent.rollout.group import AbortReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.rollout.group import Group, Rollout
    from rl_agent.tasks.quarantine import Quarantine


class Suspects:
    """Watches the groups of each step and puts broken tasks into quarantine."""

    def __init__(self, quarantine: Quarantine, *, after: int) -> None:
        """`after`: set-ups of a task that failed, or pairs of equal patches of which one was solved and one was not."""
        self._quarantine = quarantine
        self._after = after
        self._failed: Counter[str] = Counter()
        self._verdicts: dict[str, dict[bytes, Counter[bool]]] = {}

    def observe(self, groups: Sequence[Group]) -> dict[str, float]:
        """Take note of a step; returns metrics."""
        for group in groups:
            for rollout in group.rollouts:
                self._observe(rollout)
        return {"data/quarantined": float(len(self._quarantine))}

    def _observe(self, rollout: Rollout) -> None:
        task = rollout.task_id
        verdict = rollout.verdict
        graded_wrong = verdict is not None and bool(verdict.metadata.get("setup_failed"))
        if rollout.abort is AbortReason.SETUP_ERROR or graded_wrong:
            self._failed[task] += 1
            if self._failed[task] >= self._after:
                detail = verdict.log if verdict is not None else rollout.detail
                self._quarantine.add(task, "setup_failed", detail[:2000])
        elif rollout.reward is not None and rollout.patch and rollout.status in ("solved", "failed"):
            key = hashlib.sha256(rollout.patch).digest()
            verdicts = self._verdicts.setdefault(task, {}).setdefault(key, Counter())
            verdicts[rollout.status == "solved"] += 1
            if min(verdicts[True], verdicts[False]) >= self._after:
                what = f"{verdicts[True]} times solved and {verdicts[False]} times not, with one patch"
                self._quarantine.add(task, "verdict_flips", what)

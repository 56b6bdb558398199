"""Detection of broken tasks during training: their setup fails, or equal patches get different verdicts."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from rl_agent.rollout.group import AbortReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.rollout.group import Group, Rollout
    from rl_agent.tasks.quarantine import Quarantine

REMEMBERED: Final = 100_000
"""Number of remembered observations, about 20 MB: the last results of some 12,000 tasks with a group size of 8."""
DIGEST_BYTES: Final = 8
"""With this size, the probability of a collision among REMEMBERED observations is 3e-10."""


class Suspects:
    """Detector that puts broken tasks into quarantine."""

    def __init__(self, quarantine: Quarantine, *, after: int, remembered: int = REMEMBERED) -> None:
        """`after`: number of failed setups, or of pairs of equal patches with different verdicts, before quarantine."""
        self._quarantine = quarantine
        self._after = after
        self._seen = _Recent(remembered)
        self._without_control: set[str] = set()
        """Tasks without a test that can be made wrong (docs/graders.md)."""

    def observe(self, groups: Sequence[Group]) -> dict[str, float]:
        """Observe the groups of a step, and return metrics."""
        for group in groups:
            for rollout in group.rollouts:
                self._observe(rollout)
        return {
            "data/quarantined": float(len(self._quarantine)),
            "data/tasks_without_control": float(len(self._without_control)),
        }

    def _observe(self, rollout: Rollout) -> None:
        task = rollout.task_id
        verdict = rollout.verdict
        if verdict is not None and not verdict.has_control:
            self._without_control.add(task)
        graded_wrong = verdict is not None and bool(verdict.metadata.get("setup_failed"))
        if rollout.abort is AbortReason.SETUP_ERROR or graded_wrong:
            if self._seen.add(_digest("setup", task)) >= self._after:
                detail = verdict.log if verdict is not None else rollout.detail
                self._quarantine.add(task, "setup_failed", detail[:2000])
        elif rollout.reward is not None and rollout.patch and rollout.status in ("solved", "failed"):
            self._seen.add(_digest(rollout.status, task, rollout.patch))
            solved, failed = (self._seen.count(_digest(status, task, rollout.patch)) for status in ("solved", "failed"))
            if min(solved, failed) >= self._after:
                what = f"the same patch was solved {solved} times and failed {failed} times"
                self._quarantine.add(task, "verdict_flips", what)


class _Recent:
    """Counts of observations. Beyond the maximum number, the least recent one is dropped."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: OrderedDict[bytes, int] = OrderedDict()

    def add(self, thing: bytes) -> int:
        """Count an observation, and return its new count."""
        count = self._counts[thing] = self._counts.pop(thing, 0) + 1
        if len(self._counts) > self._most:
            self._counts.popitem(last=False)
        return count

    def count(self, thing: bytes) -> int:
        return self._counts.get(thing, 0)


def _digest(what: str, task: str, patch: bytes = b"") -> bytes:
    return hashlib.sha256(b"\0".join((what.encode(), task.encode(), patch))).digest()[:DIGEST_BYTES]

"""How often each task is solved. A task that never was and then always is may have been fixed, or its tests fooled."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rl_agent.rollout.group import Group

log = logging.getLogger(__name__)

JUMP_AFTER: Final = 8
"""Graded rollouts, none of them solved, after which a group that is solved throughout is a jump."""
NAMES_SHOWN: Final = 5


class PassRates:
    """Counts over the whole run, in a file of JSON lines: a group a line."""

    def __init__(self, path: Path) -> None:
        """Reads what a run before has written there."""
        self._path = path
        self._groups: dict[str, tuple[str, int, int]] = {}
        """Group id -> task, solved rollouts, graded rollouts."""
        if path.is_file():
            for line in path.read_text().splitlines():
                try:
                    row = json.loads(line)
                    self._groups[str(row["group_id"])] = (str(row["task_id"]), int(row["solved"]), int(row["graded"]))
                except (ValueError, KeyError, TypeError):
                    continue  # a line that a killed run has half written

    def observe(self, groups: Sequence[Group]) -> dict[str, float]:
        """Take note of a step; returns metrics."""
        new = {}
        for group in groups:
            rewarded = [rollout for rollout in group.rollouts if rollout.reward is not None]
            solved = sum(rollout.status == "solved" for rollout in rewarded)
            new[group.group_id] = (group.task.task_id, solved, len(rewarded))
            self._groups.pop(group.group_id, None)  # a resumed run does steps again
        before = self._totals()
        jumped = [
            task
            for task, solved, graded in new.values()
            if graded > 1 and solved == graded and before.get(task, (1, 0))[0] == 0 and before[task][1] >= JUMP_AFTER
        ]
        if jumped:
            log.warning("never solved before, now always: %s; look at their patches", ", ".join(jumped[:NAMES_SHOWN]))
        self._write(new)
        totals = [total for total in self._totals().values() if total[1]]
        return {
            "data/tasks_tried": float(len(totals)),
            "data/tasks_never_solved": float(sum(solved == 0 for solved, _ in totals)),
            "data/tasks_always_solved": float(sum(solved == graded for solved, graded in totals)),
            "data/pass_rate_jumps": float(len(jumped)),
        }

    def _totals(self) -> dict[str, tuple[int, int]]:
        totals: dict[str, tuple[int, int]] = {}
        for task, solved, graded in self._groups.values():
            one, all_ = totals.get(task, (0, 0))
            totals[task] = (one + solved, all_ + graded)
        return totals

    def _write(self, new: dict[str, tuple[str, int, int]]) -> None:
        self._groups |= new
        with self._path.open("a") as file:
            for group_id, (task, solved, graded) in new.items():
                row = {"group_id": group_id, "task_id": task, "solved": solved, "graded": graded}
                file.write(json.dumps(row) + "\n")

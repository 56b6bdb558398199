"""Pass rate of each task. If a task jumps from never to always solved, the policy may exploit its tests."""

from __future__ import annotations

import json
import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rl_agent.rollout.group import Group

log = logging.getLogger(__name__)

JUMP_AFTER: Final = 8
"""Number of graded rollouts without a solved one, after which a fully solved group counts as a jump."""
NAMES_SHOWN: Final = 5


class PassRates:
    """Counts over the whole run, in a file of JSON lines with one group per line.

    The time per step does not depend on earlier steps. Memory grows with the number of tasks, not of groups.
    """

    def __init__(self, path: Path) -> None:
        """Read the counts of an earlier run, if any."""
        self._path = path
        self._before: dict[str, tuple[str, int, int]] = {}
        """Group id -> task, solved rollouts, graded rollouts of the earlier run, since a resumed run repeats steps."""
        self._by_task: dict[str, tuple[int, int]] = {}
        """Task -> solved rollouts, graded rollouts."""
        self._tasks: Counter[str] = Counter()
        """Number of tasks of each of `_kinds`."""
        if path.is_file():
            for line in path.read_text().splitlines():
                try:
                    row = json.loads(line)
                    self._before[str(row["group_id"])] = (str(row["task_id"]), int(row["solved"]), int(row["graded"]))
                except (ValueError, KeyError, TypeError):
                    continue  # an incomplete line of a killed run
        for task, solved, graded in self._before.values():
            self._add(task, solved, graded)

    def observe(self, groups: Sequence[Group]) -> dict[str, float]:
        """Count the groups of a step, and return metrics."""
        new = {}
        for group in groups:
            rewarded = [rollout for rollout in group.rollouts if rollout.reward is not None]
            solved = sum(rollout.status == "solved" for rollout in rewarded)
            new[group.group_id] = (group.task.task_id, solved, len(rewarded))
            if again := self._before.pop(group.group_id, None):
                self._add(again[0], -again[1], -again[2])
        jumped = [task for task, solved, graded in new.values() if graded > 1 and self._jumps(task, solved == graded)]
        if jumped:
            log.warning(
                "never solved before, now always solved: %s. Check their patches.", ", ".join(jumped[:NAMES_SHOWN])
            )
        for task, solved, graded in new.values():
            self._add(task, solved, graded)
        self._write(new)
        return {
            **{f"data/tasks_{kind}": float(self._tasks[kind]) for kind in ("tried", "never_solved", "always_solved")},
            "data/pass_rate_jumps": float(len(jumped)),
        }

    def _jumps(self, task: str, always: bool) -> bool:
        solved, graded = self._by_task.get(task, (0, 0))
        return always and solved == 0 and graded >= JUMP_AFTER

    def _add(self, task: str, solved: int, graded: int) -> None:
        """Add to the counts of a task. Negative numbers subtract."""
        before = self._by_task.get(task, (0, 0))
        now = self._by_task[task] = (before[0] + solved, before[1] + graded)
        self._tasks.subtract(_kinds(*before))
        self._tasks.update(_kinds(*now))

    def _write(self, new: dict[str, tuple[str, int, int]]) -> None:
        with self._path.open("a") as file:
            for group_id, (task, solved, graded) in new.items():
                row = {"group_id": group_id, "task_id": task, "solved": solved, "graded": graded}
                file.write(json.dumps(row) + "\n")


def _kinds(solved: int, graded: int) -> list[str]:
    """Return the kinds of a task with these counts."""
    kinds = {"tried": graded > 0, "never_solved": graded > 0 == solved, "always_solved": graded == solved > 0}
    return [kind for kind, counts in kinds.items() if counts]

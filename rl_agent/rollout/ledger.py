"""The ledger of a run's rollouts: a file of JSON lines, each written before the run acts on it.

    admitted    a rollout may start            finished   it has ended, and its record is on disk
    failed      it will be retried             stopped    it is no longer needed
    lost        it was running when the run was killed
    filtered    a group does not train
    consumed    the groups of a step are about to train; others of its window are dropped
    saved       a checkpoint holds all steps before this one
    resumed     the run continues at this step: groups that later steps consumed are not trained

The ledger balances: every admitted rollout is finished, failed, stopped, lost or running. In the history of the current
weights, no group is consumed twice, or consumed and filtered.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rl_agent.errors import ConfigError, LawError
from rl_agent.rollout.group import NO_EVALUATION, Slot

if TYPE_CHECKING:
    from io import TextIOWrapper
    from pathlib import Path

    from rl_agent.rollout.scheduler import Step


class Event(StrEnum):
    """Event of a line."""

    ADMITTED = "admitted"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"
    FILTERED = "filtered"
    CONSUMED = "consumed"
    SAVED = "saved"
    RESUMED = "resumed"


_ENDS = (Event.FINISHED, Event.FAILED, Event.STOPPED, Event.LOST)


@dataclass(slots=True, kw_only=True)
class LedgerState:
    """State after all lines."""

    running: set[Slot] = field(default_factory=set)
    finished: dict[int, dict[int, str]] = field(default_factory=dict)
    """Position -> member -> status, for groups that no checkpoint holds yet."""
    consumed: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Step -> positions."""
    dropped: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Step -> positions."""
    filtered: set[int] = field(default_factory=set)
    counts: Counter[Event] = field(default_factory=Counter)
    """Number of rollout events of each kind."""
    _taken: set[int] = field(default_factory=set)

    def apply(self, event: Event, row: dict[str, Any]) -> None:
        """Apply a line. Raises LawError if it contradicts the earlier ones."""
        if event is Event.ADMITTED or event in _ENDS:
            self._rollout(event, row)
        elif event is Event.FILTERED:
            self._take([row["position"]])
            self.filtered.add(row["position"])
            self.finished.pop(row["position"], None)
        elif event is Event.CONSUMED:
            self._take([*row["positions"], *row["dropped"]])
            self.consumed[row["step"]] = tuple(row["positions"])
            self.dropped[row["step"]] = (*self.dropped.get(row["step"], ()), *row["dropped"])
            for position in row["dropped"]:
                self.finished.pop(position, None)
        elif event is Event.SAVED:
            for position in self.behind(row["step"]):
                self.finished.pop(position, None)
        else:
            self._resume(row["step"])

    def behind(self, step: int) -> list[int]:
        """Return the positions that steps before `step` have consumed, or that do not train."""
        before = [p for s in self.consumed if s < step for p in (*self.consumed[s], *self.dropped[s])]
        return [*before, *self.filtered]

    def balance(self) -> dict[str, int]:
        """Return the number of rollouts by event, and of running ones. Raises LawError if they do not add up."""
        counts = {str(event): self.counts[event] for event in (Event.ADMITTED, *_ENDS)}
        if self.counts[Event.ADMITTED] != sum(self.counts[event] for event in _ENDS) + len(self.running):
            raise LawError(f"the ledger does not balance: {counts}, and {len(self.running)} are running")
        return counts | {"running": len(self.running)}

    def _rollout(self, event: Event, row: dict[str, Any]) -> None:
        slot = _slot(row)
        if (event is Event.ADMITTED) == (slot in self.running):
            raise LawError(
                f"the ledger has {event} for {slot}, which is {'' if slot in self.running else 'not '}running"
            )
        self.counts[event] += 1
        if event is Event.ADMITTED:
            self.running.add(slot)
            return
        self.running.remove(slot)
        if event is Event.FINISHED and slot.evaluation == NO_EVALUATION:
            self.finished.setdefault(slot.position, {})[slot.member] = row["status"]

    def _take(self, positions: list[int]) -> None:
        if twice := self._taken.intersection(positions):
            raise LawError(f"the groups at {sorted(twice)} are consumed, filtered or dropped a second time")
        self._taken.update(positions)

    def _resume(self, step: int) -> None:
        if self.running:
            raise LawError(f"{len(self.running)} rollouts are still running at a resume. Record them as lost first.")
        for later in [s for s in self.consumed if s >= step]:
            self._taken.difference_update(self.consumed.pop(later))


class RolloutLedger:
    """The ledger file.

    Existing lines are read, new ones appended. An incomplete last line of a killed run is cut off.
    """

    def __init__(self, path: Path) -> None:
        """Read the file. Raises LawError for contradictory lines, and ConfigError for an invalid file."""
        self.path = path
        self.state = LedgerState()
        kept = self._read() if path.is_file() else 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: TextIOWrapper = path.open("a", buffering=1)
        self._file.truncate(kept)

    def _read(self) -> int:
        """Apply the lines of the file, and return the size of the complete ones in bytes."""
        content = self.path.read_bytes()
        kept = content.rfind(b"\n") + 1
        for number, line in enumerate(content[:kept].splitlines(), start=1):
            try:
                row = json.loads(line)
                self.state.apply(Event(row.pop("event")), row)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ConfigError(f"{self.path}, line {number}: not a valid ledger line ({error!r})") from error
        return kept

    def close(self) -> None:
        """Flush and close the file."""
        self.flush()
        self._file.close()

    def flush(self) -> None:
        """Wait until every line is on disk. A checkpoint relies on the lines written before it."""
        os.fsync(self._file.fileno())

    def admitted(self, slot: Slot, version: int) -> None:
        """Record that a rollout starts with these weights in the engine."""
        self._write(Event.ADMITTED, {**_row(slot), "version": version})

    def ended(self, slot: Slot, event: Event, status: str = "") -> None:
        """Record the end of a rollout: finished, failed or stopped."""
        self._write(event, {**_row(slot), "status": status})

    def filtered(self, position: int, reason: str) -> None:
        """Record that a group does not train."""
        self._write(Event.FILTERED, {"position": position, "reason": reason})

    def consumed(self, step: Step) -> None:
        """Record that the groups of a step are about to train."""
        self._write(
            Event.CONSUMED, {"step": step.number, "positions": list(step.positions), "dropped": list(step.dropped)}
        )

    def saved(self, step: int) -> None:
        """Record that a checkpoint holds all steps before `step`."""
        self._write(Event.SAVED, {"step": step})
        self.flush()

    def resumed(self, step: int) -> None:
        """Record that the run continues at `step`. Rollouts that were running when it was killed are lost."""
        for slot in sorted(self.state.running):
            self._write(Event.LOST, _row(slot))
        self._write(Event.RESUMED, {"step": step})

    def _write(self, event: Event, row: dict[str, Any]) -> None:
        self.state.apply(event, row)
        self._file.write(json.dumps({"event": event, **row, "time": round(time.time(), 3)}) + "\n")


def _row(slot: Slot) -> dict[str, int]:
    row = {"position": slot.position, "member": slot.member, "attempt": slot.attempt}
    return row if slot.evaluation == NO_EVALUATION else {**row, "evaluation": slot.evaluation}


def _slot(row: dict[str, Any]) -> Slot:
    return Slot(**{name: row[name] for name in ("position", "member", "attempt", "evaluation") if name in row})

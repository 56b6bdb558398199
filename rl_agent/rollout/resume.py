"""Resume: find the finished rollouts of an earlier run that need not run again, from its ledger and buffer."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rl_agent.errors import ConfigError
from rl_agent.rollout.group import Slot
from rl_agent.rollout.scheduler import History
from rl_agent.rollout.task_stream import TaskStream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rl_agent.rollout.buffer import Buffer
    from rl_agent.rollout.group import Rollout
    from rl_agent.rollout.ledger import RolloutLedger
    from rl_agent.tasks.source import TaskSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """Starting point of a resumed run."""

    history: History
    rollouts: Mapping[Slot, Rollout] = field(default_factory=dict)
    """Finished and not trained, in data order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of the current run. They may differ from those of the earlier run."""

    first_step: int
    tasks_per_step: int
    members: int
    """Number of rollouts per group."""
    max_staleness: int


def restore(ledger: RolloutLedger, buffer: Buffer, source: TaskSource, *, seed: int, shape: Shape) -> Restored:
    """Enter the resume into the ledger, and return the finished rollouts that keep their slot.

    Rollouts run again if they are not on disk, were broken by infrastructure, belong to another task now, or would be
    too stale.
    """
    state = ledger.state
    if missing := [step for step in range(shape.first_step) if step not in state.consumed]:
        raise ConfigError(
            f"{ledger.path}: the tasks of step {missing[0]} are missing, so the data order cannot be continued. "
            "Restore the file as the run left it, or start a new run from the exported model."
        )
    ledger.resumed(shape.first_step)
    taken = frozenset(state.behind(shape.first_step)) | frozenset(p for step in state.dropped.values() for p in step)
    gone = sorted(taken)
    stream = TaskStream(source, seed)
    waiting = [position for position in sorted(state.finished) if position not in taken]
    kept: dict[Slot, Rollout] = {}
    for position in waiting:
        task = stream.at(position)
        step = shape.first_step + (position - bisect.bisect(gone, position)) // shape.tasks_per_step
        for member in sorted(state.finished[position]):
            slot = Slot(position=position, member=member)
            rollout = buffer.load(slot.rollout_id) if member < shape.members else None
            if (
                rollout is not None
                and rollout.task_id == task.task_id
                and rollout.reward is not None
                and _oldest(rollout, step) >= step - shape.max_staleness
            ):
                kept[slot] = rollout
    buffer.keep_only(slot.rollout_id for slot in kept)
    dropped = {step: len(positions) for step, positions in state.dropped.items() if step >= shape.first_step}
    return Restored(history=History(taken=taken, done=frozenset(kept), dropped=dropped), rollouts=kept)


def _oldest(rollout: Rollout, step: int) -> int:
    """Return the oldest version of the weights that sampled a token."""
    return min(
        (int(part.weight_versions[part.loss_mask].min()) for part in rollout.segments if part.trained), default=step
    )

"""What a resumed run makes of the ledger and the buffer of the one before: which rollouts it need not do again."""

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
    """Where a run goes on."""

    history: History
    rollouts: Mapping[Slot, Rollout] = field(default_factory=dict)
    """Finished and not trained, in data order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the run of now asks for; it need not be what the run before did."""

    first_step: int
    tasks_per_step: int
    members: int
    """Rollouts that a group may have."""
    max_staleness: int


def restore(ledger: RolloutLedger, buffer: Buffer, source: TaskSource, *, seed: int, shape: Shape) -> Restored:
    """Enter the resume into the ledger, and find the finished rollouts that still have their place in the data order.

    Left out, and so run again: what is not on the disk, what infrastructure broke, what now stands at another task, and what would be too stale.
    """
    state = ledger.state
    if missing := [step for step in range(shape.first_step) if step not in state.consumed]:
        raise ConfigError(
            f"{ledger.path} does not say which tasks step {missing[0]} trained on, so the data order cannot be continued. "
            "Remedy: put the file back as the run left it, or start a new run from its exported model"
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
    """The oldest weights that sampled a token of it."""
    return min(
        (int(part.weight_versions[part.loss_mask].min()) for part in rollout.segments if part.trained), default=step
    )

"""The ledger balances, refuses what cannot be, and survives being cut off in the middle of a line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rl_agent.errors import ConfigError, LawError
from rl_agent.rollout.buffer import Buffer
from rl_agent.rollout.group import Slot
from rl_agent.rollout.ledger import Event, RolloutLedger
from rl_agent.rollout.resume import Shape, restore
from rl_agent.rollout.scheduler import Step

if TYPE_CHECKING:
    from pathlib import Path


def slot(position: int, member: int = 0, attempt: int = 0) -> Slot:
    return Slot(position=position, member=member, attempt=attempt)


def finished(ledger: RolloutLedger, *slots: Slot) -> None:
    for one in slots:
        ledger.admitted(one, version=0)
        ledger.ended(one, Event.FINISHED, "solved")


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    ledger = RolloutLedger(tmp_path / "ledger.jsonl")
    finished(ledger, slot(0), slot(1), slot(2))
    ledger.admitted(slot(3), version=0)
    ledger.filtered(1, "zero_variance")
    ledger.consumed(Step(number=0, positions=(0,), dropped=(2,)))
    ledger.close()
    again = RolloutLedger(tmp_path / "ledger.jsonl")
    assert again.state == ledger.state
    assert again.state.balance() == {
        "admitted": 4,
        "finished": 3,
        "failed": 0,
        "stopped": 0,
        "lost": 0,
        "running": 1,
    }
    again.close()


def test_a_torn_last_line_is_cut_off_and_the_file_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = RolloutLedger(path)
    finished(ledger, slot(0))
    ledger.close()
    whole = path.read_text()
    path.write_text(whole + '{"event": "admit')
    again = RolloutLedger(path)
    finished(again, slot(1))
    again.close()
    assert path.read_text().startswith(whole)
    assert all(json.loads(line)["event"] for line in path.read_text().splitlines())


@pytest.mark.parametrize("line", ["{", "[]", '{"event": "eaten"}', '{"event": "admitted"}', "\x00\x00"])
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text(f'{{"event": "saved", "step": 0}}\n{line}\n')
    with pytest.raises(ConfigError, match=r"ledger\.jsonl, line 2"):
        RolloutLedger(path)


@pytest.mark.parametrize("event", [Event.FINISHED, Event.FAILED, Event.STOPPED])
def test_a_rollout_that_does_not_run_cannot_end(tmp_path: Path, event: Event) -> None:
    with pytest.raises(LawError, match="not running"):
        RolloutLedger(tmp_path / "ledger.jsonl").ended(slot(0), event)


def test_a_rollout_cannot_start_twice(tmp_path: Path) -> None:
    ledger = RolloutLedger(tmp_path / "ledger.jsonl")
    ledger.admitted(slot(0), version=0)
    with pytest.raises(LawError):
        ledger.admitted(slot(0), version=0)


def test_a_group_trains_at_most_once(tmp_path: Path) -> None:
    ledger = RolloutLedger(tmp_path / "ledger.jsonl")
    ledger.consumed(Step(number=0, positions=(0, 1)))
    with pytest.raises(LawError, match="second time"):
        ledger.consumed(Step(number=1, positions=(1, 2)))
    ledger.filtered(3, "zero_variance")
    with pytest.raises(LawError, match="second time"):
        ledger.consumed(Step(number=1, positions=(3, 4)))


def test_after_a_resume_what_no_checkpoint_holds_trains_again_and_what_ran_is_lost(tmp_path: Path) -> None:
    ledger = RolloutLedger(tmp_path / "ledger.jsonl")
    for step in range(3):
        finished(ledger, slot(step))
        ledger.consumed(Step(number=step, positions=(step,)))
    ledger.saved(1)
    ledger.admitted(slot(3), version=3)
    ledger.close()
    again = RolloutLedger(tmp_path / "ledger.jsonl")
    again.resumed(1)
    assert again.state.balance()["lost"] == 1
    assert sorted(again.state.finished) == [1, 2]
    again.consumed(Step(number=1, positions=(1,)))
    with pytest.raises(LawError):
        again.consumed(Step(number=1, positions=(0,)))


def test_a_ledger_that_is_gone_is_an_error_not_a_run_from_the_start(tmp_path: Path) -> None:
    shape = Shape(first_step=2, tasks_per_step=1, members=1, max_staleness=0)
    with pytest.raises(ConfigError, match=r"ledger.jsonl: the tasks of step 0 are missing.*Restore the file"):
        restore(RolloutLedger(tmp_path / "ledger.jsonl"), Buffer(tmp_path / "buffer"), source=None, seed=0, shape=shape)  # type: ignore[arg-type]

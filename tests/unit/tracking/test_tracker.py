"""Records: the same keys everywhere, nothing that is no number, and a view that shows each step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rl_agent.config.tracking import TrackingConfig, WandbMode
from rl_agent.embedded.toy_source import ToyDataConfig
from rl_agent.errors import ConfigError
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.rollout.group import AbortReason, Group, Rollout
from rl_agent.run_folder import RunFolder
from rl_agent.tracking.console import Console
from rl_agent.tracking.rollout_table import LONGEST_TEXT, rollout_rows
from rl_agent.tracking.tracker import Tracker, sweep_of, wandb_id

if TYPE_CHECKING:
    from pathlib import Path

METRICS = {"reward/mean": 0.25, "tokens/sampled": 31.0, "rollout/status/solved": 2.0}


def tracker(path: Path, mode: WandbMode) -> Tracker:
    return Tracker(TrackingConfig(wandb=mode), RunFolder(path), {"seed": 0}, run_id="run")


def test_a_step_is_one_json_object_and_an_offline_wandb_run(tmp_path: Path) -> None:
    with tracker(tmp_path, WandbMode.offline) as records:
        records.log(1, METRICS)
        records.log(2, METRICS)
        records.summary({"steps": 2})
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [{"step": 1, **METRICS}, {"step": 2, **METRICS}]
    assert json.loads((tmp_path / "summary.json").read_text()) == {"steps": 2}
    assert list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_refused(tmp_path: Path, value: float) -> None:
    with tracker(tmp_path, WandbMode.disabled) as records, pytest.raises(ValueError, match="train/loss"):
        records.log(1, {**METRICS, "train/loss": value})
    assert not (tmp_path / "metrics.jsonl").exists()


def test_online_without_a_key_names_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="WANDB_API_KEY"):
        tracker(tmp_path, WandbMode.online).__enter__()


def test_the_console_shows_figures_statuses_and_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    with Console(steps=4, first_step=0, rollouts_per_step=2, live=True) as console:
        console.rollout("solved")
        console.step(1, METRICS)
        console.summary([METRICS, {**METRICS, "reward/mean": 0.75}], {"seconds": "9"})
    shown = capsys.readouterr().out
    assert "step   1/4  reward 0.25  [solved 2]" in shown
    assert "0.50" in shown  # the mean of the table's columns
    assert "seconds: 9" in shown


def test_a_resumed_run_keeps_its_wandb_id_and_another_one_has_another(tmp_path: Path) -> None:
    first = wandb_id(RunFolder(tmp_path / "12-00-00"))
    assert wandb_id(RunFolder(tmp_path / "12-00-00")) == first
    assert wandb_id(RunFolder(tmp_path / "other" / "12-00-00")) != first  # the same name on another day
    for _ in range(2):
        with tracker(tmp_path / "12-00-00", WandbMode.offline) as records:
            records.log(1, METRICS)
    parts = sorted(
        (tmp_path / "12-00-00" / "wandb").glob("offline-run-*")
    )  # -<start>-<id>, and a number within a second
    assert parts
    assert {path.name.split("-")[3] for path in parts} == {first}


def test_runs_of_a_sweep_share_a_group_and_others_have_none(tmp_path: Path) -> None:
    sweep = tmp_path / "2026-11-29" / "22-30-00"
    sweep.mkdir(parents=True)
    (sweep / "multirun.yaml").write_text("")
    assert {sweep_of(RunFolder(sweep / number)) for number in "01"} == {"sweep 2026-11-29 22-30-00"}
    assert sweep_of(RunFolder(tmp_path / "2026-11-29" / "21-00-00")) is None


def test_a_table_of_rollouts_is_bounded_and_shows_every_status(tmp_path: Path) -> None:
    task = next(ToyDataConfig(kinds=["sub"], image="host").build().tasks(0))
    rollouts = tuple(
        Rollout(
            rollout_id=f"00000-000-{number:02d}",
            group_id="00000-000",
            task_id=task.task_id,
            attempt=0,
            verdict=None if number == 19 else Verdict(status=VerdictStatus.FAILED, reward=0.0),
            abort=AbortReason.SETUP_ERROR if number == 19 else None,
            turns=("x" * 5000,),
        )
        for number in range(20)
    )
    group = Group(group_id="00000-000", task=task, rollouts=rollouts)
    rows = rollout_rows([group], 4)
    assert [row["rollout"][-2:] for row in rows] == ["00", "19", "01", "02"]
    assert rows[1]["reward"] is None
    assert len(rows[0]["transcript"]) < LONGEST_TEXT + 60
    assert "[... 3000 characters ...]" in rows[0]["transcript"]
    assert rollout_rows([group], 0) == []
    with tracker(tmp_path, WandbMode.offline) as records:
        records.rollouts(1, [group])
        records.table("evaluation/tasks", [{"task_id": "a", "pass@1": None, "statuses": {"failed": 1}}])
    tables = {
        path.name.partition("_")[0]: json.loads(path.read_text()) for path in (tmp_path / "wandb").rglob("*.table.json")
    }
    assert len(tables["rollouts"]["data"]) == 16
    assert tables["tasks"]["data"] == [["a", None, '{"failed": 1}']]

"""Records: the same keys everywhere, nothing that is no number, and a view that shows each step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rl_agent.config.tracking import TrackingConfig, WandbMode
from rl_agent.errors import ConfigError
from rl_agent.run_folder import RunFolder
from rl_agent.tracking.console import Console
from rl_agent.tracking.tracker import Tracker

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

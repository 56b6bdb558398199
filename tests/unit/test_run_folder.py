"""A run folder hides half-written things and finds the newest whole checkpoint."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from rl_agent.errors import ConfigError
from rl_agent.run_folder import CONFIG, SUMMARY, RunFolder, require_run, unfinished_runs

if TYPE_CHECKING:
    from pathlib import Path


def checkpoint(folder: RunFolder, step: int, keep: int = 2) -> None:
    (folder.begin_checkpoint(step) / "weights").write_text(str(step))
    folder.finish_checkpoint(step, {}, keep)


def test_an_unfinished_checkpoint_does_not_hide_the_last_whole_one(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    checkpoint(folder, 2)
    (folder.begin_checkpoint(4) / "weights").write_text("half")
    found = folder.last_checkpoint()
    assert found is not None
    assert found.step == 2
    assert (found.folder / "weights").read_text() == "2"


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for step in (1, 2, 3):
        checkpoint(folder, step)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step_00002", "step_00003"]


def test_what_a_killed_run_left_half_written_is_removed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    checkpoint(folder, 2)
    (folder.begin_checkpoint(4) / "weights").write_text("half")
    (folder.begin_export(3) / "model.safetensors").write_text("whole")
    folder.finish_export(3)
    (folder.begin_export(4) / "model.safetensors").write_text("half")
    folder.remove_unfinished()
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_00002"]
    assert [path.name for path in (tmp_path / "exports").iterdir()] == ["step_00003"]


def test_an_export_replaces_that_of_the_run_before(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for text in ("before", "after"):
        (folder.begin_export(3) / "model.safetensors").write_text(text)
        folder.finish_export(3)
    assert (tmp_path / "exports" / "step_00003" / "model.safetensors").read_text() == "after"


def test_resume_from_nothing_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such run folder"):
        require_run(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="no run folder"):
        require_run(tmp_path)
    (tmp_path / CONFIG).write_text("seed: 0")
    require_run(tmp_path)
    assert RunFolder(tmp_path).last_checkpoint() is None


def test_the_newest_run_that_has_not_ended_comes_first(tmp_path: Path) -> None:
    for number, name in enumerate(("2026-01-01/10-00-00", "2026-01-01/11-00-00", "2026-01-02/09-00-00")):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / CONFIG).write_text("seed: 0")
        os.utime(folder / CONFIG, (number, number))
    (tmp_path / "2026-01-02/09-00-00" / SUMMARY).write_text("{}")
    assert [run.name for run in unfinished_runs(tmp_path)] == ["11-00-00", "10-00-00"]


def test_metrics_after_the_checkpoint_and_a_torn_line_are_forgotten(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.metrics.write_text("".join(json.dumps({"step": s}) + "\n" for s in (1, 2, 3)) + '{"step": 4, "rew')
    folder.truncate_metrics(2)
    assert [json.loads(line)["step"] for line in folder.metrics.read_text().splitlines()] == [1, 2]

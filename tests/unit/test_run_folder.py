"""A run folder hides half-written things and finds the newest whole checkpoint."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from rl_agent.__main__ import _run_dir, main
from rl_agent.errors import ConfigError
from rl_agent.run_folder import CONFIG, SUMMARY, RunFolder, held, in_use, require_run, unfinished_runs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOLDER = """
import subprocess, sys
from pathlib import Path
from rl_agent.run_folder import held
with held(Path(sys.argv[1])):
    child = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, close_fds=False)
    print(child.pid, flush=True)
    sys.stdin.read()
"""
"""A process that is in a run folder, and has started one that outlives it."""


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
    with pytest.raises(ConfigError, match="run folder not found"):
        require_run(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="not a run folder"):
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


def run_of(output: Path, name: str, age: int) -> Path:
    folder = output / name
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text("job: {_target_: train}")
    os.utime(folder / CONFIG, (age, age))
    return folder


@contextmanager
def holder(root: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process in the folder; killed at the latest at the end, with what it has started."""
    command = [sys.executable, "-c", HOLDER, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            yield process
        finally:
            process.kill()
            os.kill(child, 9)


def test_resume_auto_passes_over_a_run_that_a_process_is_at(tmp_path: Path) -> None:
    older, live = run_of(tmp_path, "2026-01-01/10-00-00", 1), run_of(tmp_path, "2026-01-01/11-00-00", 2)
    with holder(live):
        assert _run_dir("auto", str(tmp_path), "train", "d", "t") == str(older)
    assert _run_dir("auto", str(tmp_path), "train", "d", "t") == str(live)


def test_resuming_a_run_that_a_process_is_at_names_both_and_leaves_it_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live = run_of(tmp_path, "2026-01-01/11-00-00", 1)
    with holder(live) as process:
        before = sorted(live.iterdir())
        with pytest.raises(SystemExit) as ended:
            main([f"resume={live}"])
        assert sorted(live.iterdir()) == before
        with pytest.raises(ConfigError, match="in use"), held(live):
            pass
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert f"error: the run folder {live} is in use: process {process.pid} on " in told
    assert "Wait until that run ends" in told


def test_a_killed_run_frees_its_folder_at_once_though_what_it_had_started_lives(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        assert in_use(tmp_path)
        process.kill()
        process.wait()
        assert not in_use(tmp_path)
        with held(tmp_path):
            assert in_use(tmp_path)


def test_a_job_started_in_the_folder_of_a_live_one_ends_before_it_writes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rl_agent", "job=plan", f"hydra.run.dir={tmp_path}"]
    with held(tmp_path):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"the run folder {tmp_path} is in use: process {os.getpid()} on " in done.stderr
    assert not (tmp_path / CONFIG).exists()


def test_a_file_system_without_locks_gets_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none(*_unused: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with held(tmp_path):
        assert not in_use(tmp_path)
    assert "Make sure that no other run writes there" in caplog.text

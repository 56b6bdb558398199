"""A sweep over joblib's launcher: the runs go on at the same time, each in a process and a folder of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rl_agent.run_folder import RunFolder
from rl_agent.tracking.tracker import sweep_of
from tests.e2e.command import Command

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_sweep_of_plans_runs_in_two_processes(tmp_path: Path) -> None:
    sweep = Command(
        output=tmp_path / "unused",
        overrides=(
            "-m",
            "hydra/launcher=joblib",
            "hydra.launcher.n_jobs=2",
            "job=plan",
            "algo.group_size=4,8",
            "rollout.tasks_per_step=1",
            f"hydra.sweep.dir={tmp_path}/2026-11-29/sweep",
        ),
    )
    done = sweep.run(timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    folders = [tmp_path / "2026-11-29" / "sweep" / number for number in "01"]
    plans = [json.loads((folder / "plan.json").read_text()) for folder in folders]
    assert [plan["rates"]["most_tokens"] for plan in plans] == [4 * 2048, 8 * 2048]
    assert "group_size: 8" in (folders[1] / "config.yaml").read_text()
    assert {sweep_of(RunFolder(folder)) for folder in folders} == {"sweep 2026-11-29 sweep"}  # wandb's group

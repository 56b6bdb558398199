"""Jobs that train on what a run has recorded: no sampler, no sandbox, no engine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.e2e.command import Command

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

RECORDED = Path(__file__).parents[1] / "data" / "recorded_rollouts"


def test_supervised_fine_tuning_learns_from_the_solved_rollouts_of_a_run(tmp_path: Path) -> None:
    shutil.copytree(RECORDED, tmp_path / "before" / "rollouts")
    run = Command(
        output=tmp_path / "run",
        overrides=(
            "tracking.console=false",
            "tracking=none",
            "job=sft",
            "model.warm_start=true",
            f"job.rollouts={tmp_path}/before",
            "job.steps=4",
            "algo.lr=1e-4",
            "algo.lr_warmup_steps=0",
        ),
    )
    done = run.run(timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    losses = [record["train/loss"] for record in run.metrics()]
    assert len(losses) == 4
    assert losses[-1] < 0.9 * losses[0]  # the same few rollouts each time
    assert (run.output / "model" / "model.safetensors").is_file()

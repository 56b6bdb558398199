"""Trainer and engine on one GPU, taking turns: the engine sleeps while the trainer works. Needs a GPU; nothing of it is tried without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from tests.e2e.command import Command

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


def test_two_steps_on_one_gpu_with_an_engine_that_sleeps_in_between(tmp_path: Path) -> None:
    run = Command(
        output=tmp_path / "run",
        overrides=(
            "debug=fast",
            "tracking=none",
            "engine=vllm",
            "engine.gpu_memory_utilization=0.3",
            "trainer=megatron",
            "weights=ipc",
            "cluster.colocated=true",
            "cluster.trainer_gpus=0.5",
            "cluster.engine_gpus=0.5",
            "algo.max_staleness=0",
        ),
    )
    done = run.run(timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [record["step"] for record in run.metrics()] == [1, 2]
    log = (run.output / "logs" / "vllm.log").read_text()
    assert "sleep" in log.lower()
    assert "wake up the engine" in log

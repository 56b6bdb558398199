"""`python -m rl_agent sandbox=docker`: a real Podman runs agents and hidden tests."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests import podman
from tests.e2e.command import Command

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(500),
    pytest.mark.skipif(podman.missing() is not None, reason=str(podman.missing())),
]


def test_a_run_trains_in_containers(tmp_path: Path) -> None:
    system = "import os; print(os.path.dirname(os.__file__))"
    library = subprocess.run(["/usr/bin/python3", "-c", system], capture_output=True, text=True, check=True).stdout
    with podman.service(more=["git", "python3", "awk", "xargs"], trees=[library.strip()]) as url:
        run = Command(
            output=tmp_path / "run",
            overrides=(
                "harness=codex",
                "sandbox=docker",
                f"sandbox.url='{url}'",
                "sandbox.pull=false",
                f"sandbox.state_dir={tmp_path}/docker",
                f"data.image={podman.IMAGE}",
                "engine=demonstrator",
                "debug=fast",
                "harness.time_budget_s=180",
                "job.steps=2",
                "tracking=none",
            ),
        )
        done = run.run(timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [metrics["reward/mean"] for metrics in run.metrics()] == [1.0, 1.0]
    assert all(metrics["sandbox/boots"] >= 4 for metrics in run.metrics())
    assert list((tmp_path / "docker" / "docker" / "live").iterdir()) == []

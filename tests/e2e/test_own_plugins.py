"""Plug-ins of another package: installed beside rl_agent, found on the search path, checked like ours, and used in a run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local import needs_root

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
SEARCH_PATH = "hydra.searchpath=[pkg://own_plugins.conf]"
CHOICES = (
    *("algo/loss=tanh", "algo/advantage=fixed_baseline", "grader=small_patch"),
    *("harness=shell", "sandbox=logged", "data=chores"),
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the package, without its dependencies."""
    source = tmp_path_factory.mktemp("source") / "own_plugins"
    shutil.copytree(ROOT / "examples" / "own_plugins", source)  # building leaves files beside the source
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(source)]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def rl_agent(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-m", "rl_agent", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)


@needs_root
def test_a_run_uses_six_plug_ins_of_another_package(installed: Path, tmp_path: Path) -> None:
    boots = tmp_path / "boots.jsonl"
    done = rl_agent(
        installed,
        *(SEARCH_PATH, *CHOICES, "engine=demonstrator", "debug=fast", "tracking=none"),
        *(f"hydra.run.dir={tmp_path}/run", f"sandbox.log={boots}", "grader.free_lines=1", "algo.loss.steepness=2"),
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(metrics) == 2
    assert all(step["train/grad_norm"] > 0 for step in metrics)  # the loss and the advantage made a step
    rollouts = [
        json.loads(line)
        for path in sorted((tmp_path / "run" / "rollouts").glob("step_*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    assert all(one["task_id"].startswith("chore-") and one["status"] == "solved" for one in rollouts)
    assert all(0.5 <= one["reward"] < 1.0 for one in rollouts)  # solved, with a price on the length
    assert len(boots.read_text().splitlines()) >= 2 * len(rollouts)  # the agent's and the grading's


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("harness.time_budgets=1", "Did you mean `harness.time_budget_s`"),
        ("algo.loss.stepness=1", "Did you mean `algo.loss.steepness`"),
        ("+algo.advantage.scales=1", "Did you mean `algo.advantage.scale`"),
        ("grader.free_line=1", "Did you mean `grader.free_lines`"),
        ("harness=shel", "Did you mean `shell`"),
    ],
)
def test_a_wrong_key_of_a_foreign_plug_in_is_named(installed: Path, wrong: str, message: str) -> None:
    choices = [choice for choice in CHOICES if not choice.startswith(f"{wrong.partition('=')[0]}=")]
    done = rl_agent(installed, SEARCH_PATH, *choices, wrong)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_of_options_works_as_well(installed: Path) -> None:
    folder = installed / "own_plugins" / "conf"
    done = rl_agent(installed, "--config-dir", str(folder), *CHOICES, "--cfg", "job")
    assert done.returncode == 0, done.stderr
    assert "_target_: own_plugins.shell.ShellConfig" in done.stdout

"""Which weights a path stands for, and which number they have."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from rl_agent.embedded.tiny import WARM_STARTS
from rl_agent.errors import ConfigError
from rl_agent.jobs.checkpoints import policy_of, resolve, version_of
from rl_agent.run_folder import RunFolder
from tests.unit.config.test_composition import composed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that has two checkpoints, an export, and five steps' metrics."""
    for step in (2, 4):
        folder = tmp_path / "checkpoints" / f"step_{step:05d}"
        folder.mkdir(parents=True)
        (folder / "state.json").write_text(json.dumps({"step": step}))
    shutil.copytree(WARM_STARTS / "claude_code", tmp_path / "exports" / "step_00003")
    (tmp_path / "metrics.jsonl").write_text('{"step": 4}\n{"step": 5}\n{"step": 6, "torn')
    return tmp_path


def test_a_run_folder_is_its_model_or_while_it_has_none_its_newest_checkpoint(run: Path) -> None:
    assert resolve(run) == run / "checkpoints" / "step_00004"
    shutil.copytree(WARM_STARTS / "claude_code", run / "model")
    assert resolve(run) == run / "model"
    for named in (run / "model", run / "exports" / "step_00003", run / "checkpoints" / "step_00002"):
        assert resolve(named) == named


def test_what_is_no_policy_is_refused_with_what_would_be_one(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"job\.checkpoint=.*nowhere: folder not found"):
        resolve(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"not a Hugging Face folder.*Name <run folder>"):
        resolve(run / "checkpoints")
    (run / "exports" / "step_00003" / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="no weights found"):
        resolve(run / "exports" / "step_00003")


def test_the_number_of_the_weights_comes_from_the_name_or_the_metrics(run: Path) -> None:
    assert version_of(run / "exports" / "step_00003") == 3
    assert version_of(run / "model") == 5  # the last step whose metrics are whole
    assert version_of(WARM_STARTS / "claude_code") == 0


async def test_a_policy_is_the_models_own_or_the_one_that_is_named(run: Path, tmp_path: Path) -> None:
    own = await policy_of(composed("job=evaluate"), None, RunFolder(tmp_path / "new"))
    assert (own.folder, own.version, own.name) == (WARM_STARTS / "claude_code", 0, "model=tiny")
    export = run / "exports" / "step_00003"
    named = await policy_of(composed("job=evaluate"), str(export), RunFolder(tmp_path / "new"))
    assert (named.folder, named.version, named.name) == (export, 3, str(export))

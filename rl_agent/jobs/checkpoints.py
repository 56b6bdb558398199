"""Weights that a job samples with: the model's own, a Hugging Face folder, or a trained run (`job.checkpoint`)."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rl_agent.cluster.bring_up import trainers
from rl_agent.errors import ConfigError
from rl_agent.jobs.preflight import require_layout, require_weights
from rl_agent.run_folder import PARTIAL, STATE, RunFolder

if TYPE_CHECKING:
    from rl_agent.config.schema import Config

KEY: Final = "job.checkpoint"


@dataclass(frozen=True, slots=True)
class Policy:
    """Weights that sample, with their origin."""

    folder: Path
    """Hugging Face folder of the weights."""
    version: int
    """Number of training steps, 0 if unknown."""
    name: str
    """Name of the policy in records."""


async def policy_of(config: Config, checkpoint: str | None, folder: RunFolder) -> Policy:
    """Return the policy of `job.checkpoint`, or the model's own policy without one.

    The trainer of this configuration exports a trainer checkpoint to `model/` in the run folder first. Raises
    ConfigError if the path has no weights.
    """
    model = config.model.build()
    if checkpoint is None:
        return Policy(model.folder(folder.root), 0, f"model={config.model.name}")
    path = resolve(Path(checkpoint))
    if not (path / STATE).is_file():
        return Policy(path, version_of(path), str(path))
    state = json.loads((path / STATE).read_text())
    if not folder.model.is_dir():
        await _export(config, folder, path, model.folder(folder.root))
    return Policy(folder.model, int(state["step"]), str(path))


def resolve(path: Path) -> Path:
    """Return the folder with the weights.

    For a run folder, this is `model/`, or the newest checkpoint without `model/`.
    """
    if not path.is_dir():
        raise ConfigError(f"{KEY}={path}: folder not found. Give the path of an existing folder.")
    if (path / "config.json").is_file():
        require_weights(path)
        return path
    if (path / STATE).is_file():
        return path
    run = RunFolder(path)
    if (run.model / "config.json").is_file():
        return run.model
    newest = run.last_checkpoint()
    if newest is not None:
        return newest.folder
    raise ConfigError(
        f"{KEY}={path}: not a Hugging Face folder (config.json), a complete trainer checkpoint ({STATE}) or a run "
        "folder with either. Name <run folder>, <run folder>/exports/step_<n>, <run folder>/checkpoints/step_<n> "
        "or a model folder."
    )


def version_of(path: Path) -> int:
    """Return the training steps of an exported folder, from its name or from the metrics of its run; 0 if unknown."""
    named = re.fullmatch(r"step_(\d+)", path.name)
    if named:
        return int(named[1])
    metrics = RunFolder(path.parent).metrics
    if path != RunFolder(path.parent).model or not metrics.is_file():
        return 0
    steps = [line for line in metrics.read_text().splitlines() if line.endswith("}")]
    return int(json.loads(steps[-1])["step"]) if steps else 0


async def _export(config: Config, folder: RunFolder, checkpoint: Path, model_folder: Path) -> None:
    require_layout(config, model_folder)
    partial = folder.model.with_name(folder.model.name + PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    async with trainers(config, folder, model_folder) as ranks:
        await ranks.load(checkpoint)
        await ranks.export(partial)
    partial.replace(folder.model)

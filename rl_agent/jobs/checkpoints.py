"""Which weights a job samples with: those of the model's option, of a Hugging Face folder, or of a run that trained."""

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
    """The weights that sample."""

    folder: Path
    """In Hugging Face layout."""
    version: int
    """Training steps that made them; 0 where nothing says."""
    name: str
    """Name of the policy in records."""


async def policy_of(config: Config, checkpoint: str | None, folder: RunFolder) -> Policy:
    """The policy that `job.checkpoint` names; the model's own without one.

    A checkpoint of the trainer is exported first, by the trainer of this configuration, into the run folder's `model/`.
    Raises ConfigError for a path that is none of these.
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
    """The folder that is meant: a run folder stands for its `model/`, or for its newest checkpoint while it has no `model/`."""
    if not path.is_dir():
        raise ConfigError(f"{KEY}={path}: there is no such folder")
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
    """Training steps that made an exported folder: from its name, or from the metrics of the run whose `model/` it is."""
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

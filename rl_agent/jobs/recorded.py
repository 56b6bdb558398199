"""What offline jobs read: the rollouts that a run has recorded, and the reasons why they may not do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omegaconf import OmegaConf

from rl_agent.config.rollout import SaveRollouts
from rl_agent.errors import ConfigError
from rl_agent.rollout import records
from rl_agent.run_folder import RunFolder
from rl_agent.trainer.shape import read_shape

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rl_agent.rollout.group import Rollout


def require_recorded(root: Path, key: str) -> list[int]:
    """The steps of which the run folder `root` has rollouts. Raises ConfigError naming `key` if there are none."""
    if not root.is_dir():
        raise ConfigError(f"{key}={root}: there is no such run folder")
    steps = records.recorded_steps(RunFolder(root).rollouts)
    if not steps:
        raise ConfigError(
            f"{key}={root}: it holds no recorded rollouts (rollouts/step_<n>.jsonl). Remedy: name a run folder of job=train "
            "that has done a step with rollout.save=all"
        )
    return steps


def require_whole_groups(root: Path, key: str) -> None:
    """Raise ConfigError for a run that kept failures only: advantages compare all rollouts of a group."""
    config = root / "config.yaml"
    if config.is_file() and OmegaConf.select(OmegaConf.load(config), "rollout.save") == SaveRollouts.failures:
        raise ConfigError(
            f"{key}={root}: that run kept only what failed (rollout.save=failures), so its groups are not whole. "
            "Remedy: a run with rollout.save=all"
        )


def require_known_tokens(rollouts: Sequence[Rollout], model_folder: Path, key: str) -> None:
    """Raise ConfigError for tokens that the model does not have: the rollouts are of another one."""
    vocabulary = read_shape(model_folder).vocab
    largest = max((int(part.tokens.max()) for one in rollouts for part in one.segments if len(part.tokens)), default=0)
    if largest >= vocabulary:
        raise ConfigError(
            f"{key}: its rollouts have token {largest}, but the vocabulary of {model_folder} ends at {vocabulary - 1}. "
            "Remedy: choose the model that the rollouts were sampled with"
        )

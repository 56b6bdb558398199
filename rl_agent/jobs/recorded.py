"""Checks on recorded rollouts before an offline job reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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

_PLAIN: Final = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0}


def require_recorded(root: Path, key: str) -> list[int]:
    """Return the recorded steps of the run folder `root`. Raises ConfigError with `key` if there are none."""
    if not root.is_dir():
        raise ConfigError(f"{key}={root}: run folder not found. Give the path of a run folder.")
    steps = records.recorded_steps(RunFolder(root).rollouts)
    if not steps:
        raise ConfigError(
            f"{key}={root}: no recorded rollouts found (rollouts/step_<n>.jsonl). Name a run folder of job=train or "
            "job=rollout that completed a step with rollout.save=all."
        )
    return steps


def require_whole_groups(root: Path, key: str) -> None:
    """Raise ConfigError for a run that saved only failures, since advantages compare all rollouts of a group."""
    config = root / "config.yaml"
    if config.is_file() and OmegaConf.select(OmegaConf.load(config), "rollout.save") == SaveRollouts.failures:
        raise ConfigError(
            f"{key}={root}: the run saved only failures (rollout.save=failures), so its groups are incomplete. "
            "Use a run with rollout.save=all."
        )


def require_plain_sampling(root: Path, key: str) -> None:
    """Raise ConfigError for rollouts whose log-probabilities are not those of the sampled distribution."""
    config = root / "config.yaml"
    sampling = (OmegaConf.select(OmegaConf.load(config), "rollout.sampling") if config.is_file() else None) or {}
    changed = [name for name, plain in _PLAIN.items() if sampling.get(name, plain) != plain]
    if changed:
        raise ConfigError(
            f"{key}={root}: the run has {', '.join(f'rollout.sampling.{n}={sampling[n]}' for n in changed)}, so its "
            "log-probabilities are not those of the sampling distribution. Use a run with temperature 1 and no other "
            "filter, or job=sft job.rollouts=, which needs no log-probabilities."
        )


def require_known_tokens(rollouts: Sequence[Rollout], model_folder: Path, key: str) -> None:
    """Raise ConfigError for tokens outside the model's vocabulary, which come from another model."""
    vocabulary = read_shape(model_folder).vocab
    largest = max((int(part.tokens.max()) for one in rollouts for part in one.segments if len(part.tokens)), default=0)
    if largest >= vocabulary:
        raise ConfigError(
            f"{key}: its rollouts have token {largest}, but the vocabulary of {model_folder} ends at {vocabulary - 1}. "
            "Use the model with which the rollouts were sampled."
        )

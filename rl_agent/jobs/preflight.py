"""Checks before anything starts, since starting takes a minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rl_agent.errors import ConfigError
from rl_agent.graders.judge import PatchGrader
from rl_agent.ports import LOOPBACK, hold_port
from rl_agent.trainer.legal import require_legal
from rl_agent.trainer.shape import read_shape

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.config.schema import Config
    from rl_agent.tasks.task import Task

_BOOT_S: Final = 300.0


async def require_startable(config: Config, task: Task) -> None:
    """Raise an error for a missing CLI or grader package, a port in use, or an image of `task` that does not boot."""
    config.harness.build().find_assets()
    if isinstance(grader := config.grader.build(), PatchGrader):
        grader.require_usable(task)
    provider = config.sandbox.build()
    if config.cluster.address is not None:  # sandboxes and ports are on other machines
        return
    _require_port(config.engine.host, config.engine.port, "engine.port")
    _require_port(config.adapter.bind_host, config.adapter.port, "adapter.port")
    async with provider.boot(task.image, lifetime_s=_BOOT_S):
        pass


def require_weights(model_folder: Path) -> None:
    """Raise ConfigError for a model folder without config.json or weights."""
    if not (model_folder / "config.json").is_file():
        raise ConfigError(
            f"model folder {model_folder}: config.json not found. Set model.path to a Hugging Face folder."
        )
    if not any(model_folder.glob("*.safetensors")):
        raise ConfigError(
            f"{model_folder}: no weights found (*.safetensors). Set model.path to a folder with weights, or, for the "
            "tiny policy, set model.warm_start=true."
        )


def require_layout(config: Config, model_folder: Path) -> None:
    """Raise ConfigError for an unsupported model, or an invalid parallel layout."""
    require_legal(config.trainer, read_shape(model_folder))


def _require_port(host: str, port: int, key: str) -> None:
    """Raise ConfigError for a port in use. Port 0 is always free. Host `auto` is loopback here."""
    if port:
        hold_port(LOOPBACK if host == "auto" else host, port, key=key).close()

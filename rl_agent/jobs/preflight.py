"""What can be known to fail before anything is started, since starting takes a minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rl_agent.config.load import build
from rl_agent.errors import ConfigError
from rl_agent.graders.base import Grader
from rl_agent.graders.judge import PatchGrader
from rl_agent.harnesses.base import Harness
from rl_agent.ports import LOOPBACK, hold_port
from rl_agent.trainer.legal import require_legal
from rl_agent.trainer.shape import read_shape

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.config.schema import Config
    from rl_agent.sandboxes.base import SandboxProvider
    from rl_agent.tasks.task import Task

_BOOT_S: Final = 300.0


async def require_startable(config: Config, task: Task) -> None:
    """Raise the error of a CLI that is not there, a grader's package that is missing, a port in use, or an image that does not boot (`task`'s is tried)."""
    harness: Harness = build(config.harness, Harness)
    harness.assets  # noqa: B018 (looks for the CLI's files)
    if isinstance(grader := build(config.grader, Grader), PatchGrader):
        grader.require_usable(task)
    provider: SandboxProvider = config.sandbox.build()
    if config.cluster.address is not None:  # then sandboxes and ports are those of other machines
        return
    _require_port(config.engine, "host", "engine.port")
    _require_port(config.adapter, "bind_host", "adapter.port")
    async with provider.boot(task.image, lifetime_s=_BOOT_S):
        pass


def require_weights(model_folder: Path) -> None:
    """Raise ConfigError for a model folder without config.json or weights."""
    if not (model_folder / "config.json").is_file():
        raise ConfigError(f"model folder {model_folder} has no config.json; set model.path to a Hugging Face folder")
    if not any(model_folder.glob("*.safetensors")):
        raise ConfigError(
            f"model folder {model_folder} has no weights (*.safetensors). Remedy: set model.path to a folder that has them; "
            "for the tiny policy, model.warm_start=true."
        )


def require_layout(config: Config, model_folder: Path) -> None:
    """Raise ConfigError for a model that the trainer does not know, or a parallel layout that it cannot have."""
    require_legal(config.trainer, read_shape(model_folder))


def _require_port(node: Any, host: str, key: str) -> None:
    """`node` has fields `port` (0 or none: a free one will be taken) and `host` (`auto` is loopback here)."""
    port = getattr(node, "port", 0)
    if port:
        address = getattr(node, host)
        hold_port(LOOPBACK if address == "auto" else address, port, key=key).close()

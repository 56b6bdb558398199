"""A policy in a local Hugging Face folder. Nothing is downloaded at run time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from rl_agent.config.model import ModelConfig
from rl_agent.errors import ConfigError


@dataclass(kw_only=True)
class ModelFolderConfig(ModelConfig):
    """Model in a local Hugging Face folder."""

    @override
    def build(self) -> ModelFolder:
        return ModelFolder(self)


class ModelFolder:
    """Provider of `model.path`."""

    def __init__(self, config: ModelFolderConfig) -> None:
        self._config = config

    def folder(self, scratch: Path) -> Path:
        """Return the folder. Raises ConfigError if it is not set or holds no model."""
        if self._config.path is None:
            raise ConfigError(
                f"model.path: null, but model={self._config.name} needs it. Set it to a Hugging Face folder; "
                "nothing is downloaded at run time."
            )
        folder = Path(self._config.path)
        if not (folder / "config.json").is_file():
            raise ConfigError(f"model.path={folder}: config.json not found. Set it to a Hugging Face folder.")
        return folder

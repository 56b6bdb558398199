"""A policy in a local Hugging Face folder. Nothing is downloaded at run time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_agent.errors import ConfigError


class ModelFolder:
    """Policy at `model.path`, built from conf/model/*.yaml."""

    def __init__(
        self,
        *,
        name: str,
        path: str | None,
        renderer: str,
        tool_parser: str | None,
        reasoning_parser: str | None,
        hf_config: dict[str, Any],
    ) -> None:
        self.name = name
        self.path = path
        self.renderer = renderer
        self.tool_parser = tool_parser
        self.reasoning_parser = reasoning_parser
        self.hf_config = hf_config

    def folder(self, scratch: Path) -> Path:
        """Return the folder. Raises ConfigError if it is not set or holds no model."""
        if self.path is None:
            raise ConfigError(
                f"model={self.name} needs model.path=<folder in Hugging Face layout>; nothing is downloaded at run time"
            )
        folder = Path(self.path)
        if not (folder / "config.json").is_file():
            raise ConfigError(f"model.path={folder} holds no config.json")
        return folder

"""The contract of policies: where the folder of the model that is trained lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path


class PolicyFolder(Protocol):
    """A policy. Built by `ModelConfig.build`."""

    def folder(self, scratch: Path) -> Path:
        """Its folder in Hugging Face layout, made under `scratch` if need be. Raises ConfigError."""

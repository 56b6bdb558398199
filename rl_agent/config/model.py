"""Schema of `model/`: which policy is trained, and how its text becomes tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from omegaconf import MISSING


@dataclass(slots=True, kw_only=True)
class ModelConfig:
    """A policy: a folder in Hugging Face layout and the way it is rendered and parsed."""

    _target_: str = MISSING
    """Provides the folder: a class with `folder(harness, cache) -> Path`."""
    name: str = MISSING
    path: str | None = None
    """A Hugging Face folder (config.json, tokenizer, safetensors)."""
    renderer: str = "auto"
    """`auto`, `template` (the folder's chat template), or a family known to the `renderers` library."""
    tool_parser: str | None = None
    """A vLLM tool parser by name, for families that the renderer cannot parse."""
    reasoning_parser: str | None = None
    """A vLLM reasoning parser by name."""


SCHEMAS: Final = {"model": ModelConfig}

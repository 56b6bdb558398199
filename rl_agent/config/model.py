"""Base config of a policy: the model, and the conversion between its text and tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from omegaconf import MISSING
from typing_extensions import override

from rl_agent.config.plug_in import PlugInConfig, Problem, existing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.config.schema import Config
    from rl_agent.trainer.base import PolicyFolder


@dataclass(kw_only=True)
class ModelConfig(PlugInConfig, base=True):
    """Options that every policy has: its Hugging Face folder, rendering and parsing."""

    name: str = MISSING
    """Name of the model."""
    path: str | None = None
    """Hugging Face folder (config.json, tokenizer, safetensors)."""
    renderer: str = "auto"
    """`auto`, `template` (the folder's chat template), or a family of the `renderers` library."""
    tool_parser: str | None = None
    """Name of a vLLM tool parser, for families that the renderer cannot parse."""
    reasoning_parser: str | None = None
    """Name of a vLLM reasoning parser."""
    style: str | None = None
    """Agent CLI on whose exact output the model was warmed up; null: none."""
    hf_config: dict[str, Any] = field(default_factory=dict)
    """Shape fields of the published config.json, for `job=plan` if `path` is null. Other jobs read the folder."""

    @override
    def build(self) -> PolicyFolder:
        """Return the provider of the model's folder."""
        raise NotImplementedError

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        for key in ("tool_parser", "reasoning_parser"):
            if getattr(self, key) is not None and self.renderer not in {"auto", "template"}:
                yield Problem(
                    f"model.{key}",
                    f"model.renderer={self.renderer} parses replies itself.",
                    "Set model.renderer=template, or leave the parsers null.",
                )
        yield from existing(model__path=self.path)

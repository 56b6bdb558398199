"""Choice of a model's renderer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_agent.errors import ConfigError
from rl_agent.tokens.family_renderer import FamilyRenderer
from rl_agent.tokens.template_renderer import TemplateRenderer

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.tokens.renderer import Renderer
    from rl_agent.tokens.reply_parser import ReplyParser


def build_renderer(
    model_folder: Path, renderer: str = "auto", *, keep_reasoning: bool = True, reply_parser: ReplyParser | None = None
) -> Renderer:
    """Return the renderer called `renderer`: `auto`, `template`, or the name of a family in the `renderers` library.

    `auto` uses the family that lists a model named like the folder (`Qwen3-4B`), or else the chat template. With a
    `reply_parser` it uses the chat template. Raises ConfigError, also for a template whose tool calls cannot be parsed.
    """
    family = _family_of(model_folder.name) if renderer == "auto" and reply_parser is None else renderer
    if family in {None, "auto", "template"}:
        template = TemplateRenderer(model_folder, keep_reasoning=keep_reasoning, reply_parser=reply_parser)
        template.require_readable_calls()
        return template
    if reply_parser is not None:
        raise ConfigError(
            f"model.renderer={family}: parses replies itself. Set model.tool_parser and model.reasoning_parser to null."
        )
    return FamilyRenderer(model_folder, str(family), keep_reasoning=keep_reasoning)


def _family_of(model_name: str) -> str | None:
    from renderers.base import MODEL_RENDERER_MAP  # noqa: PLC0415 (optional, and slow to import)

    for model, family in MODEL_RENDERER_MAP.items():
        if model.rpartition("/")[2].lower() == model_name.lower():
            return str(family)
    return None

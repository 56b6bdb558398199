"""Chooses the renderer of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_agent.tokens.family_renderer import FamilyRenderer
from rl_agent.tokens.template_renderer import TemplateRenderer

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.tokens.renderer import Renderer


def build_renderer(model_folder: Path, renderer: str = "auto", *, keep_reasoning: bool = True) -> Renderer:
    """The renderer called `renderer`: `auto`, `template`, or a family's name as the `renderers` library has it.

    `auto` takes the family whose list of models has one named like the folder (`Qwen3-4B`), and the chat template otherwise.
    """
    family = _family_of(model_folder.name) if renderer == "auto" else renderer
    if family is None or family == "template":
        return TemplateRenderer(model_folder, keep_reasoning=keep_reasoning)
    return FamilyRenderer(model_folder, family, keep_reasoning=keep_reasoning)


def _family_of(model_name: str) -> str | None:
    from renderers.base import MODEL_RENDERER_MAP  # noqa: PLC0415 (optional, and slow to import)

    for model, family in MODEL_RENDERER_MAP.items():
        if model.rpartition("/")[2].lower() == model_name.lower():
            return str(family)
    return None

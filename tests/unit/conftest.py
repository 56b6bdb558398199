"""Fixtures of unit tests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(
    0, str(Path(__file__).parents[2])
)  # so that tests can share `tests.scripted` wherever pytest is started

if TYPE_CHECKING:
    from rl_agent.tokens.template_renderer import TemplateRenderer


@pytest.fixture(scope="session")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> TemplateRenderer:
    """A renderer over a small tokenizer with a Qwen-like template."""
    from rl_agent.tokens.template_renderer import TemplateRenderer
    from tests.scripted import save_tokenizer

    return TemplateRenderer(save_tokenizer(tmp_path_factory.mktemp("tokenizer")))

"""The renderer that a model gets: its calls can be read back, or that is said at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rl_agent.embedded.tiny import WARM_STARTS
from rl_agent.errors import ConfigError
from rl_agent.tokens.build import build_renderer
from rl_agent.tokens.reply_parser import TaggedParser
from rl_agent.tokens.template_renderer import TemplateRenderer
from rl_agent.trainer.smollm2 import TEMPLATE
from tests.scripted import save_tokenizer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("style", ["claude_code", "codex"])
def test_the_embedded_policies_write_calls_that_are_read_back(style: str) -> None:
    assert isinstance(build_renderer(WARM_STARTS / style), TemplateRenderer)


def test_so_does_smollm2s_template(tmp_path: Path) -> None:
    folder = save_tokenizer(tmp_path)
    (folder / "chat_template.jinja").write_text(TEMPLATE.read_text())
    assert isinstance(build_renderer(folder), TemplateRenderer)


def test_a_template_that_drops_calls_is_a_config_error(tmp_path: Path) -> None:
    folder = save_tokenizer(tmp_path)
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text().replace("m.tool_calls or []", "[]"))
    with pytest.raises(ConfigError, match=r"Set model\.tool_parser"):
        build_renderer(folder)


def test_a_family_takes_no_parser_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="parses replies itself"):
        build_renderer(save_tokenizer(tmp_path), "qwen3", reply_parser=TaggedParser())

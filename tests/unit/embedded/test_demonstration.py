"""Demonstrations read as the task asks, and the tokenizer of the tiny policy loses nothing."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_agent.embedded.agent_style import agent_style
from rl_agent.embedded.demonstration import Demonstrations, encoder
from rl_agent.embedded.tiny import WARM_STARTS, TinyPolicyConfig, create
from rl_agent.embedded.toy import toy_tasks
from rl_agent.embedded.toy_kinds import KINDS
from rl_agent.errors import ConfigError
from rl_agent.tokens.template_renderer import TemplateRenderer
from rl_agent.tokens.turn import FinishReason

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rl_agent.tokens.turn import Int32

STYLES = ["claude_code", "codex"]


def maker(style: str) -> tuple[Demonstrations, TemplateRenderer]:
    folder = WARM_STARTS / style
    renderer = TemplateRenderer(folder)
    return Demonstrations(agent_style(style), renderer, encoder(folder)), renderer


@pytest.mark.parametrize("style", STYLES)
def test_a_demonstration_looks_edits_and_ends_as_the_policy_would(style: str) -> None:
    makes, renderer = maker(style)
    for task in itertools.islice(toy_tasks(3, "train", list(KINDS)), 46):
        shown = makes.make(task, task.right)
        text = renderer.text(shown.tokens)
        assert task.problem_statement in text
        assert task.source.rstrip("\n") in text
        assert f"return {task.right}" in text
        assert not shown.sampled[0]
        places = np.flatnonzero(shown.sampled)
        runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
        assert len(runs) == 3
        for run in runs[:2]:
            reply = renderer.parse(shown.tokens[run], FinishReason.STOP, prompt_tokens=shown.tokens[: run[0]])
            assert [call.name for call in reply.tool_calls] == [agent_style(style).command_tool]
            assert not reply.ill_formed
        assert renderer.text(shown.tokens[runs[2]]) == "Done.<|im_end|>"
        assert len(shown.tokens) < 150


@pytest.mark.parametrize("style", STYLES)
def test_the_share_of_right_demonstrations_is_the_configured_one(style: str) -> None:
    makes, _ = maker(style)
    tasks = list(itertools.islice(toy_tasks(0, "train", ["sub"]), 400))
    right = sum(
        makes.mixed(task, 0.4).tokens.tolist() == makes.make(task, task.right).tokens.tolist() for task in tasks
    )
    assert 0.33 < right / len(tasks) < 0.47


@pytest.mark.parametrize("style", STYLES)
def test_the_shipped_tokenizer_is_the_one_that_is_made_anew(style: str, tmp_path: Path) -> None:
    made = create(tmp_path / style, style)
    for name in ("tokenizer.json", "chat_template.jinja", "config.json"):
        assert (made / name).read_text() == (WARM_STARTS / style / name).read_text(), name


def test_the_shipped_warm_starts_are_small() -> None:
    assert sum(path.stat().st_size for path in WARM_STARTS.rglob("*") if path.is_file()) < 6_000_000


@given(st.text(max_size=80))
def test_any_text_survives_the_tokenizer(text: str) -> None:
    renderer, encode = _shipped()
    assert renderer.text(encode(text)) == text


@functools.cache
def _shipped() -> tuple[TemplateRenderer, Callable[[str], Int32]]:
    folder = WARM_STARTS / "claude_code"
    return TemplateRenderer(folder), encoder(folder)


def test_an_agent_without_a_style_is_named() -> None:
    with pytest.raises(ConfigError, match="`other`"):
        TinyPolicyConfig(style="other").build().folder(WARM_STARTS)

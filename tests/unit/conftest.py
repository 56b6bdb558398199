"""Fixtures of unit tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rl_agent.tokens.template_renderer import TemplateRenderer


@pytest.fixture(scope="session")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> TemplateRenderer:
    """A renderer over a small tokenizer with a Qwen-like template."""
    from rl_agent.tokens.template_renderer import TemplateRenderer
    from tests.scripted import save_tokenizer

    return TemplateRenderer(save_tokenizer(tmp_path_factory.mktemp("tokenizer")))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What came to the disk, in order: `sync <name>`, `<name>` where a file got its name, `remove <name>`."""
    story: list[str] = []
    sync, replace, unlink = os.fsync, os.replace, os.unlink

    def tell_sync(descriptor: int) -> None:
        sync(descriptor)
        story.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")

    def tell_replace(source: Any, target: Any) -> None:
        replace(source, target)
        story.append(Path(target).name)

    def tell_unlink(path: Any, **more: Any) -> None:
        unlink(path, **more)
        story.append(f"remove {Path(path).name}")

    monkeypatch.setattr(os, "fsync", tell_sync)
    monkeypatch.setattr(os, "replace", tell_replace)
    monkeypatch.setattr(os, "unlink", tell_unlink)
    return story

"""A renderer with a vocabulary of Qwen's size, without a download: SmolLM2's merges, and further ones of its most frequent tokens."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from rl_agent.embedded import tiny
from rl_agent.tokens.template_renderer import TemplateRenderer

QWEN_SIZE = 151_643
CONTROL = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
TEMPLATE = Path(tiny.__file__).parent / "tiny_chat_template.jinja"


def qwen_size_renderer(folder: Path, source: Path | None = None) -> TemplateRenderer:
    """Write the tokenizer into `folder` and load it. `source`: a tokenizer folder to start from, SmolLM2's by default."""
    if source is None:
        from rl_agent.trainer.smollm2 import CACHE, converted  # noqa: PLC0415 (needs an optional package)

        source = converted(CACHE)
    described: dict[str, Any] = json.loads((source / "tokenizer.json").read_text())
    vocab, merges = described["model"]["vocab"], described["model"]["merges"]
    frequent = [token for token, _ in sorted(vocab.items(), key=lambda item: item[1]) if token.isalpha()][:2000]
    for left, right in itertools.product(frequent, frequent):
        if len(vocab) >= QWEN_SIZE:
            break
        if left + right not in vocab:
            vocab[left + right] = len(vocab)
            merges.append([left, right])
    for text in CONTROL:
        if text not in vocab:
            vocab[text] = len(vocab)
        token = {"id": vocab[text], "content": text, "special": False}
        described["added_tokens"].append(
            token | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(described))
    settings = json.loads((source / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "chat_template.jinja").write_text(TEMPLATE.read_text())
    return TemplateRenderer(folder)

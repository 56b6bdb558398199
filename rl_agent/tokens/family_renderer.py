"""Renderer for a known model family, using the `renderers` library: byte-exact prompts, bridges and parsing.

The library takes and returns lists. A bridge passes only the last turn, so its cost does not grow with the chain.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_agent.errors import ConfigError
from rl_agent.tokens.chat_form import shown_message
from rl_agent.tokens.family_reply import json_call, rebuilt_call
from rl_agent.tokens.messages import Message, ParsedReply, Role, ToolCall
from rl_agent.tokens.tagged_reply import CALL_OPEN
from rl_agent.tokens.tokenizer import load_tokenizer
from rl_agent.tokens.tool_text import shown_function
from rl_agent.tokens.turn import FinishReason
from rl_agent.tokens.untrusted import Guard, GuardedTokenizer
from rl_agent.tokens.whole import MARK, is_whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rl_agent.tokens.messages import Conversation, ToolSpec
    from rl_agent.tokens.turn import Int32, Turn


class FamilyRenderer:
    """Renders for the family called `family` (`qwen3`, `glm-4.5`, `gpt-oss`, ...) with the tokenizer in `model_folder`."""

    def __init__(self, model_folder: Path, family: str, *, keep_reasoning: bool = True) -> None:
        """`keep_reasoning`: keep earlier reasoning in the prompt even if the family's template would drop it."""
        from renderers import create_renderer  # noqa: PLC0415 (optional, and slow to import)
        from renderers.configs import config_from_name  # noqa: PLC0415 (optional, and slow to import)

        tokenizer = load_tokenizer(model_folder)
        try:
            config: Any = config_from_name(family)
            if keep_reasoning:
                config = type(config)(thinking_retention="all")
            self._guard = Guard.of(tokenizer)
            self._inner: Any = create_renderer(GuardedTokenizer(tokenizer, self._guard), config)
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(
                f"model.renderer={family}: {model_folder}: {error}. Use another family, or model.renderer=template."
            ) from error
        self._encoder: Any = tokenizer.backend_tokenizer
        self._call_open: int | None = self._encoder.token_to_id(CALL_OPEN)

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Return the family's end tokens."""
        return tuple(int(i) for i in self._inner.get_stop_token_ids())

    def render(self, conversation: Conversation) -> Int32:
        """Return the full prompt as [T] int32."""
        messages = [self._shown(m) for m in conversation.messages]
        tools = [self._guard.value(shown_function(t)) for t in conversation.tools]
        return np.array(
            self._inner.render_ids(messages, tools=tools or None, add_generation_prompt=True), dtype=np.int32
        )

    def bridge(
        self, last: Turn, new_messages: Sequence[Message], *, tools: Sequence[ToolSpec], has_reasoning: bool
    ) -> Int32 | None:
        """Return the tokens that follow the recorded ones, or None if the family's template does not allow it."""
        del has_reasoning  # the library applies its own retention rules
        if any(m.role is Role.ASSISTANT for m in new_messages):
            return None
        prompt, sampled = last.prompt_tokens.tolist(), last.generation.tokens.tolist()
        bridged = self._inner.bridge_to_next_turn(
            prompt,
            sampled,
            [self._shown(m) for m in new_messages],
            tools=[self._guard.value(shown_function(t)) for t in tools] or None,
        )
        if bridged is None:
            return None
        ids: list[int] = bridged.token_ids
        recorded = len(prompt) + len(sampled)
        if ids[:recorded] != [*prompt, *sampled]:
            return None  # it would rewrite recorded tokens
        return np.array(ids[recorded:], dtype=np.int32)

    def parse(
        self, tokens: Int32, finish_reason: FinishReason, *, prompt_tokens: Int32, tools: Sequence[ToolSpec] = ()
    ) -> ParsedReply:
        """Parse a reply."""
        truncated = finish_reason is not FinishReason.STOP
        shown = [shown_function(t) for t in tools] or None
        try:
            found = self._inner.parse_response(tokens.tolist(), tools=shown, prompt_ids=prompt_tokens.tolist())
            reply = self._read(found, tokens, truncated)
        except Exception:  # noqa: BLE001 (a reply that breaks any family's parser is ill-formed)
            reply = None
        return reply or ParsedReply(content=self.text(tokens).strip(), ill_formed=True, truncated=truncated)

    def _read(self, found: Any, tokens: Int32, truncated: bool) -> ParsedReply | None:
        """Return the library's parse with each call parsed again, or None if it would lose part of the reply."""
        exact = [json_call(attempt) for attempt in found.tool_calls]
        read = [call or rebuilt_call(attempt) for call, attempt in zip(exact, found.tool_calls, strict=True)]
        calls = tuple(call for call in read if call is not None)
        broken = [attempt.raw for attempt, call in zip(found.tool_calls, read, strict=True) if call is None]
        rebuilt = any(call is None and again is not None for call, again in zip(exact, read, strict=True))
        outside = [] if rebuilt else self._outside(found.tool_calls, tokens)
        unclosed = found.reasoning_complete is False and not truncated
        reply = ParsedReply(
            content="\n".join(part for part in ((found.content or "").strip(), *broken, *outside) if part),
            reasoning=found.reasoning_content or None,
            tool_calls=calls,
            ill_formed=bool(broken) or unclosed,
            truncated=truncated,
        )
        return None if rebuilt and not is_whole(self.text(self._ended(tokens)), reply, self._written(calls)) else reply

    def _outside(self, attempts: Sequence[Any], tokens: Int32) -> list[str]:
        """Return the texts between and after `<tool_call>` blocks, which the library drops."""
        spans = [attempt.token_span for attempt in attempts]
        if not spans or None in spans or int(tokens[spans[0][0]]) != self._call_open:
            return []
        ends = [end for _, end in spans]
        starts = [*(start for start, _ in spans[1:]), len(self._ended(tokens))]
        return [self.text(tokens[end:start]).strip() for end, start in zip(ends, starts, strict=True)]

    def _ended(self, tokens: Int32) -> Int32:
        """Return the tokens before the first end token."""
        ends = np.flatnonzero(np.isin(tokens, self._inner.get_stop_token_ids()))
        return tokens[: ends[0]] if len(ends) else tokens

    def _written(self, calls: tuple[ToolCall, ...]) -> str:
        """Return the calls as rendered by the family. Non-string values become JSON, not Python literals (`True`)."""
        texts = [
            {
                key: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)
                for key, v in (c.arguments or {}).items()
            }
            for c in calls
        ]
        calls = tuple(replace(call, arguments=text) for call, text in zip(calls, texts, strict=True))
        asked = [self._shown(Message(role=Role.USER, content="Go on."))]
        said = self._shown(Message(role=Role.ASSISTANT, content=MARK, tool_calls=calls))
        prompt = self._inner.render_ids(asked, tools=None, add_generation_prompt=True)
        ids = self._inner.render_ids([*asked, said], tools=None, add_generation_prompt=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(prompt, ids, strict=False)))
        return self.text(self._ended(np.array(ids[shared:], dtype=np.int32)))

    def text(self, tokens: Int32) -> str:
        """Decode tokens, including special tokens."""
        text: str = self._encoder.decode(tokens.tolist(), skip_special_tokens=False)
        return text

    def _shown(self, message: Message) -> dict[str, Any]:
        return shown_message(message, self._guard)

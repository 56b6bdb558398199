"""A renderer for a known model family, through the `renderers` library: byte-exact prompts, bridges and parsing.

The library takes and returns lists; only the last turn is handed to it for a bridge, so its cost does not grow with the chain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from rl_agent.errors import ConfigError
from rl_agent.tokens.messages import ParsedReply, Role, ToolCall
from rl_agent.tokens.tagged_reply import raw_arguments
from rl_agent.tokens.tokenizer import load_tokenizer
from rl_agent.tokens.tool_text import shown_function
from rl_agent.tokens.turn import FinishReason
from rl_agent.tokens.untrusted import Guard, GuardedTokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rl_agent.tokens.messages import Conversation, Message, ToolSpec
    from rl_agent.tokens.turn import Int32, Turn


class FamilyRenderer:
    """Renders for the family called `family` (`qwen3`, `glm-4.5`, `gpt-oss`, ...) with the tokenizer in `model_folder`."""

    def __init__(self, model_folder: Path, family: str, *, keep_reasoning: bool = True) -> None:
        """`keep_reasoning`: earlier reasoning stays in the prompt even where the family's template would drop it."""
        from renderers import create_renderer  # noqa: PLC0415 (optional, and slow to import)
        from renderers.configs import config_from_name  # noqa: PLC0415 (as above)

        tokenizer = load_tokenizer(model_folder)
        try:
            config: Any = config_from_name(family)
            if keep_reasoning:
                config = type(config)(thinking_retention="all")
            self._guard = Guard.of(tokenizer)
            self._inner: Any = create_renderer(GuardedTokenizer(tokenizer, self._guard), config)
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(
                f"renderer {family!r} cannot be built for {model_folder}: {error}. Remedy: another family, or renderer=template."
            ) from error
        self._encoder: Any = tokenizer.backend_tokenizer

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """The family's end tokens."""
        return tuple(int(i) for i in self._inner.get_stop_token_ids())

    def render(self, conversation: Conversation) -> Int32:
        """[T] int32: the full prompt."""
        messages = [self._as_dict(m) for m in conversation.messages]
        tools = [self._guard.value(shown_function(t)) for t in conversation.tools]
        return np.array(
            self._inner.render_ids(messages, tools=tools or None, add_generation_prompt=True), dtype=np.int32
        )

    def bridge(
        self, last: Turn, new_messages: Sequence[Message], *, tools: Sequence[ToolSpec], has_reasoning: bool
    ) -> Int32 | None:
        """What follows the recorded tokens; None where the family's template does not allow it."""
        del has_reasoning  # the library's own retention rules decide
        if any(m.role is Role.ASSISTANT for m in new_messages):
            return None
        prompt, sampled = last.prompt_tokens.tolist(), last.generation.tokens.tolist()
        bridged = self._inner.bridge_to_next_turn(
            prompt,
            sampled,
            [self._as_dict(m) for m in new_messages],
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
        """Read a reply."""
        truncated = finish_reason is not FinishReason.STOP
        shown = [shown_function(t) for t in tools] or None
        try:
            parsed = self._inner.parse_response(tokens.tolist(), tools=shown, prompt_ids=prompt_tokens.tolist())
        except Exception:  # noqa: BLE001 (parsers of many families; whatever they stumble over is an unreadable reply)
            return ParsedReply(content=self.text(tokens).strip(), ill_formed=True, truncated=truncated)
        calls: list[ToolCall] = []
        broken: list[str] = []
        for attempt in parsed.tool_calls:
            call = _as_call(attempt)
            if call is None:
                broken.append(attempt.raw)
            else:
                calls.append(call)
        content = "\n".join(part for part in ((parsed.content or "").strip(), *broken) if part)
        unclosed = parsed.reasoning_complete is False and not truncated
        return ParsedReply(
            content=content,
            reasoning=parsed.reasoning_content or None,
            tool_calls=tuple(calls),
            ill_formed=bool(broken) or unclosed,
            truncated=truncated,
        )

    def text(self, tokens: Int32) -> str:
        """The text of tokens, special tokens included."""
        text: str = self._encoder.decode(tokens.tolist(), skip_special_tokens=False)
        return text

    def _as_dict(self, message: Message) -> dict[str, Any]:
        own = message.role is Role.ASSISTANT  # what the policy said may hold its own control tokens
        content = message.content if own else self._guard.text(message.content)
        shown: dict[str, Any] = {"role": message.role.value, "content": content}
        if message.reasoning is not None:
            shown["reasoning_content"] = message.reasoning
        if message.tool_calls:
            shown["tool_calls"] = [
                {
                    "type": "function",
                    "id": c.id,
                    "function": {"name": c.name, "arguments": c.raw if c.arguments is None else dict(c.arguments)},
                }
                for c in message.tool_calls
            ]
        if message.tool_call_id is not None:
            shown["tool_call_id"] = message.tool_call_id
        if message.tool_name is not None:
            shown["name"] = message.tool_name
        return shown


def _as_call(attempt: Any) -> ToolCall | None:
    """A call that was read whole; None for any other status than ok."""
    if attempt.status != "ok" or not attempt.name:
        return None
    arguments = attempt.arguments
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments)
        except orjson.JSONDecodeError:
            return None
    if not isinstance(arguments, dict):
        return None
    raw = raw_arguments(attempt.raw)
    if raw is not None and raw.startswith('"'):  # the arguments as a JSON text
        raw = orjson.loads(raw)
    return ToolCall(
        id="", name=attempt.name, arguments=arguments, raw=raw if raw is not None else orjson.dumps(arguments).decode()
    )

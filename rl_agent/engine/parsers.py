"""vLLM's tool and reasoning parsers by name, adapted to `tokens.reply_parser`.

vLLM's parsers are made for serving: they repair calls and return no raw text. The template renderer therefore compares
the parse with the sampled text and reports an incomplete parse as ill-formed.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import orjson

from rl_agent.errors import ConfigError
from rl_agent.tokens.messages import ParsedReply, ToolCall
from rl_agent.tokens.tagged_reply import parse_tagged, split_reasoning
from rl_agent.tokens.tokenizer import load_tokenizer
from rl_agent.tokens.tool_text import shown_function

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from rl_agent.tokens.messages import ToolSpec


class VllmParser:
    """Reply parser built from vLLM's parsers. Without a name, `<think>` and `<tool_call>` are parsed instead."""

    def __init__(self, model_folder: Path, *, tool_parser: str | None, reasoning_parser: str | None) -> None:
        """Raises ConfigError for an unknown name, or if the tokenizer lacks the parser's tokens."""
        from vllm.reasoning import ReasoningParserManager  # noqa: PLC0415 (slow to import, and only for models that need it)
        from vllm.tool_parsers import ToolParserManager  # noqa: PLC0415 (slow to import)

        self._tokenizer = _with_one_vocabulary(load_tokenizer(model_folder))
        self._tool_parser: Any = None
        self._reasoning_parser: Any = None
        if tool_parser is not None:
            names = {*ToolParserManager.tool_parsers, *ToolParserManager.lazy_parsers}
            _require_known("tool_parser", tool_parser, names)
            self._tool_parser = ToolParserManager.get_tool_parser(tool_parser)
        if reasoning_parser is not None:
            _require_known("reasoning_parser", reasoning_parser, ReasoningParserManager.list_registered())
            self._reasoning_parser = ReasoningParserManager.get_reasoning_parser(reasoning_parser)
        try:
            self.parse("", truncated=False, in_reasoning=False, tools=())
            self._new_parsers(_request(()))
        except (RuntimeError, ValueError, TypeError, KeyError) as error:
            raise ConfigError(
                f"model.tool_parser={tool_parser}, model.reasoning_parser={reasoning_parser}: incompatible with the "
                f"tokenizer in {model_folder}: {error}.  Use the parsers that vLLM's documentation lists for the model."
            ) from error

    def parse(self, text: str, *, truncated: bool, in_reasoning: bool, tools: Sequence[ToolSpec]) -> ParsedReply:
        """Parse a reply. See `ReplyParser`."""
        try:
            return self._parse(text, truncated, in_reasoning, tools)
        except Exception:  # noqa: BLE001 (a reply that breaks any parser is ill-formed)
            return ParsedReply(content=text.strip(), ill_formed=True, truncated=truncated)

    def _parse(self, text: str, truncated: bool, in_reasoning: bool, tools: Sequence[ToolSpec]) -> ParsedReply:
        request = _request(tools)
        tool_parser, reasoning_parser = self._new_parsers(request)
        if reasoning_parser is None:
            reasoning, rest, closed = split_reasoning(text, in_reasoning)
        else:
            reasoning, rest = reasoning_parser.extract_reasoning(text, request)
            rest, closed = rest or "", rest is not None or not in_reasoning
        if tool_parser is None:
            inner = parse_tagged(rest, truncated=truncated)
            content, calls, readable = inner.content, inner.tool_calls, not inner.ill_formed
        else:
            found = tool_parser.extract_tool_calls(rest, request)
            read = [_as_call(c.function.name, c.function.arguments) for c in found.tool_calls]
            calls = tuple(c for c in read if c is not None)
            content, readable = (found.content or "").strip(), len(calls) == len(read)
        return ParsedReply(
            content=content,
            reasoning=None if reasoning is None else reasoning.strip(),
            tool_calls=calls,
            ill_formed=not readable or not (closed or truncated),
            truncated=truncated,
        )

    def _new_parsers(self, request: Any) -> tuple[Any, Any]:
        """Return new parsers. Each reply needs its own because they keep state."""
        tool_parser = None if self._tool_parser is None else self._tool_parser(self._tokenizer, request.tools)
        reasoning_parser = None if self._reasoning_parser is None else self._reasoning_parser(self._tokenizer)
        return tool_parser, reasoning_parser


def named_parser(model_folder: Path, tool_parser: str | None, reasoning_parser: str | None) -> VllmParser | None:
    """Return the parser with the configured names, or None if there are none. Raises ConfigError."""
    if tool_parser is None and reasoning_parser is None:
        return None
    return VllmParser(model_folder, tool_parser=tool_parser, reasoning_parser=reasoning_parser)


def _with_one_vocabulary(tokenizer: Any) -> Any:
    """Cache the vocabulary: each new parser requests it, and building it takes 150 ms for 248,000 entries."""
    vocabulary = tokenizer.get_vocab()
    tokenizer.get_vocab = lambda: vocabulary
    return tokenizer


def _request(tools: Sequence[ToolSpec]) -> Any:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest  # noqa: PLC0415 (slow to import)

    shown = [{"type": "function", "function": shown_function(tool)} for tool in tools]
    return ChatCompletionRequest(model="policy", messages=[], tools=shown or None)


def _as_call(name: str, raw: str) -> ToolCall | None:
    try:
        arguments = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    if not name or not isinstance(arguments, dict):
        return None
    return ToolCall(id="", name=name, arguments=arguments, raw=raw)


def _require_known(key: str, name: str, names: Iterable[str]) -> None:
    known = sorted(names)
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=3) or known
    raise ConfigError(f"model.{key}={name}: unknown parser of vLLM. Use one of: {', '.join(near)}.")

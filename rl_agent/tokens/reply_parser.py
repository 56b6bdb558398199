"""The contract of reply parsers, for models whose replies the template renderer cannot read by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rl_agent.tokens.tagged_reply import parse_tagged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.tokens.messages import ParsedReply, ToolSpec


class ReplyParser(Protocol):
    """Reads the text of one reply."""

    def parse(self, text: str, *, truncated: bool, in_reasoning: bool, tools: Sequence[ToolSpec]) -> ParsedReply:
        """`text` is without its stop token; `in_reasoning`: the prompt had opened the reasoning. Never raises on what the policy says."""


class TaggedParser:
    """`<think>` reasoning and `<tool_call>` blocks of JSON."""

    def parse(self, text: str, *, truncated: bool, in_reasoning: bool, tools: Sequence[ToolSpec]) -> ParsedReply:
        """See `ReplyParser`."""
        del tools  # JSON says its own types
        return parse_tagged(text, truncated=truncated, in_reasoning=in_reasoning)

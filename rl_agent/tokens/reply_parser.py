"""Contract of reply parsers, for models whose replies the template renderer cannot parse itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rl_agent.tokens.tagged_reply import parse_tagged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.tokens.messages import ParsedReply, ToolSpec


class ReplyParser(Protocol):
    """Parser for the text of one reply."""

    def parse(self, text: str, *, truncated: bool, in_reasoning: bool, tools: Sequence[ToolSpec]) -> ParsedReply:
        """Parse a reply without stop token. Never raises on its text. `in_reasoning`: the prompt opened reasoning."""


class TaggedParser:
    """Parser for `<think>` reasoning and `<tool_call>` blocks of JSON."""

    def parse(self, text: str, *, truncated: bool, in_reasoning: bool, tools: Sequence[ToolSpec]) -> ParsedReply:
        """See `ReplyParser`."""
        del tools  # JSON values have types
        return parse_tagged(text, truncated=truncated, in_reasoning=in_reasoning)

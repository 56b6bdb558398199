"""Contract of renderers: convert conversations to token ids, and sampled token ids to replies.

A prompt is rendered in full once, at the start of a chain. After that only `bridge` is called. It renders only new
messages, so that recorded tokens are never rendered again (law 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.tokens.messages import Conversation, Message, ParsedReply, ToolSpec
    from rl_agent.tokens.turn import FinishReason, Int32, Turn


class Renderer(Protocol):
    """Converts between messages and token ids for one model. Stateless for callers and thread-safe."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Return the tokens that end the policy's turn. Generation stops after sampling one of them."""

    def render(self, conversation: Conversation) -> Int32:
        """Return the full prompt, including the generation prompt, as [T] int32."""

    def bridge(
        self, last: Turn, new_messages: Sequence[Message], *, tools: Sequence[ToolSpec], has_reasoning: bool
    ) -> Int32 | None:
        """Return the tokens after the recorded tokens of a chain whose last turn is `last`, as [T] int32.

        They are the end of a truncated turn, `new_messages` (none from the assistant), and the generation prompt. The
        cost does not depend on the length of the chain. Returns None if the template would write earlier turns
        differently; the caller then forks. `has_reasoning`: some turn of the chain has reasoning.
        """

    def parse(
        self, tokens: Int32, finish_reason: FinishReason, *, prompt_tokens: Int32, tools: Sequence[ToolSpec] = ()
    ) -> ParsedReply:
        """Parse a reply from sampled tokens. Never raises on its text: an invalid call is reported as `ill_formed`.

        `prompt_tokens` are the last tokens before the sampled tokens; a generation prompt may have opened the
        reasoning. In formats without types (XML), `tools` decide whether `5` is a number.
        """

    def text(self, tokens: Int32) -> str:
        """Decode tokens, including special tokens."""

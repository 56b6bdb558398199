"""The contract of renderers: conversations to token ids, sampled token ids back to replies.

A prompt is rendered in full once, at the start of a chain. After that only `bridge` is called: it renders what is new, so
that recorded tokens are never rendered again (law 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.tokens.messages import Conversation, Message, ParsedReply, ToolSpec
    from rl_agent.tokens.turn import FinishReason, Int32, Turn


class Renderer(Protocol):
    """Converts between messages and token ids for one model. Stateless for callers; safe to call from several threads."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end the policy's turn; generation stops after sampling one."""

    def render(self, conversation: Conversation) -> Int32:
        """[T] int32: the full prompt, generation prompt included."""

    def bridge(
        self, last: Turn, new_messages: Sequence[Message], *, tools: Sequence[ToolSpec], has_reasoning: bool
    ) -> Int32 | None:
        """[T] int32: what follows the recorded tokens of a chain whose last turn is `last`.

        That is: the close of a turn that was cut off, `new_messages` (no assistant's), and the generation prompt. The cost
        does not depend on the length of the chain. None means that the model's template cannot go on from here (it would
        write earlier turns differently): the caller forks. `has_reasoning`: some turn of the chain has reasoning.
        """

    def parse(
        self, tokens: Int32, finish_reason: FinishReason, *, prompt_tokens: Int32, tools: Sequence[ToolSpec] = ()
    ) -> ParsedReply:
        """Read a reply in sampled tokens. Never raises on what the policy says: a broken call is reported as `ill_formed`.

        `prompt_tokens` are the last tokens before the sampled ones; a generation prompt may have opened the reasoning. `tools`
        tell formats without types (XML) whether `5` is a number.
        """

    def text(self, tokens: Int32) -> str:
        """The text of tokens, special tokens included."""

"""Forks: the key of a request's chain, and the reasons why a request cannot continue recorded tokens."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from typing import TYPE_CHECKING

from rl_agent.tokens.fingerprint import message_digest, tools_digest
from rl_agent.tokens.messages import Role
from rl_agent.tokens.segment import SegmentKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.tokens.messages import Conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainKey:
    """Client's description of a request."""

    agent: str = ""
    """The client's id of the calling sub-agent or thread. Empty for the main agent. Chains of two agents never mix."""
    kind: SegmentKind = SegmentKind.MAIN


class ForkReason(StrEnum):
    """Reason why a request is not the next turn of its chain. All reasons but `branched` render a new root in full."""

    BRANCHED = "branched"
    """The previous turn already has another continuation. Recorded tokens are kept, and shared tokens train once."""
    COMPACTION = "compaction"
    """A request for a summary that does not contain a recorded turn."""
    COMPACTED = "compacted"
    """The client replaced the history, usually by a summary."""
    NEW_CONVERSATION = "new_conversation"
    """Another conversation under the same key: a sub-agent that the client does not mark."""
    TOOLS_CHANGED = "tools_changed"
    SYSTEM_CHANGED = "system_changed"
    HISTORY_CHANGED = "history_changed"
    """An earlier message differs from its recorded version."""
    FOREIGN_ASSISTANT = "foreign_assistant"
    """The new messages contain an assistant message that the policy did not sample."""
    NOTHING_NEW = "nothing_new"
    """The request ends with the policy's own reply."""
    TEMPLATE_REFUSED = "template_refused"
    """The model's template would write earlier turns differently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RootForm:
    """Key that distinguishes conversations by their beginning."""

    tools: bytes
    system: bytes
    first: bytes
    """Hash of the first message after the system messages."""

    @classmethod
    def of(cls, conversation: Conversation) -> RootForm:
        """Return the form of a conversation."""
        head = list(takewhile(lambda m: m.role is Role.SYSTEM, conversation.messages))
        system = b""
        for message in head:
            system = message_digest(system, message)
        rest = conversation.messages[len(head) : len(head) + 1]
        first = message_digest(b"", rest[0]) if rest else b""
        return cls(tools=tools_digest(conversation.tools), system=system, first=first)


def why_new_root(known: Sequence[RootForm], form: RootForm, key: ChainKey, *, recognised: bool) -> ForkReason:
    """Return why a conversation of a known agent contains no recorded turn at its place.

    `recognised`: the conversation echoes a recorded turn, but after different messages.
    """
    if key.kind is SegmentKind.COMPACTION:
        return ForkReason.COMPACTION
    same_tools = [k for k in known if k.tools == form.tools]
    same_system = [k for k in known if k.system == form.system]
    if not same_tools and not same_system:
        return ForkReason.NEW_CONVERSATION
    if not same_tools:
        return ForkReason.TOOLS_CHANGED
    if not any(k.system == form.system for k in same_tools):
        return ForkReason.SYSTEM_CHANGED if recognised else ForkReason.NEW_CONVERSATION
    if any(k.first == form.first for k in same_tools):
        return ForkReason.HISTORY_CHANGED
    return ForkReason.COMPACTED if recognised else ForkReason.NEW_CONVERSATION

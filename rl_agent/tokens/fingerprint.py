"""Canonical hashes of conversations: which recorded turns a request continues, and whether two requests are the same one.

A hash runs along the messages. An assistant's message enters it as the turn that it is, not as the text that the client
echoes, so a client may write its history as it likes (key order, white space, block order) and stays on its chain.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.tokens.messages import Message, ToolSpec


def digest(previous: bytes, *parts: str) -> bytes:
    """One step of the running hash; parts are length-prefixed, so no two lists of parts collide."""
    state = blake2b(previous, digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.digest()


def tools_digest(tools: Sequence[ToolSpec]) -> bytes:
    """Hash of the offered tools, in their order (the prompt shows them in it)."""
    shown = [[t.name, t.namespace, t.kind.value, t.description, dict(t.parameters)] for t in tools]
    return blake2b(orjson.dumps(shown), digest_size=16).digest()


def message_digest(previous: bytes, message: Message) -> bytes:
    """The running hash after a message that is no recorded turn.

    White space around contents does not count: clients add a newline when they append to a message on a retry.
    """
    parts = [message.role.value, message.content.strip(), message.tool_call_id or ""]
    parts += [part for call in message.tool_calls for part in (call.id, call.name, call.raw)]
    return digest(previous, *parts)


def turn_digest(previous: bytes, turn_id: str) -> bytes:
    """The running hash after a recorded turn."""
    return digest(previous, "turn", turn_id)


def text_key(previous: bytes, message: Message) -> bytes:
    """Names an assistant's message by what stands before it and what it visibly says, for echoes that carry no id.

    White space does not count anywhere: clients trim lines and join paragraphs.
    """
    return digest(previous, "text", " ".join(message.content.split()), *(call.name for call in message.tool_calls))

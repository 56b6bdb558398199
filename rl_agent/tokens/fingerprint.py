"""Canonical hashes of conversations: they find the recorded turns in a request and identify equal requests.

A hash runs along the messages. An assistant message enters it as its turn id, not as the text that the client echoes. A
client that changes the form of its history (key order, white space, block order) therefore stays on its chain.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.tokens.messages import Message, ToolSpec


def digest(previous: bytes, *parts: str) -> bytes:
    """Return the next step of the running hash. Parts are length-prefixed, so different lists do not collide."""
    state = blake2b(previous, digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.digest()


def tools_digest(tools: Sequence[ToolSpec]) -> bytes:
    """Return the hash of the offered tools. Their order counts because the prompt shows it."""
    shown = [[t.name, t.namespace, t.kind.value, t.description, dict(t.parameters)] for t in tools]
    return blake2b(orjson.dumps(shown), digest_size=16).digest()


def message_digest(previous: bytes, message: Message) -> bytes:
    """Return the running hash after a message that is not a recorded turn.

    White space around contents is ignored: clients add a newline when they append to a message on a retry.
    """
    parts = [message.role.value, message.content.strip(), message.tool_call_id or ""]
    parts += [part for call in message.tool_calls for part in (call.id, call.name, call.raw)]
    return digest(previous, *parts)


def turn_digest(previous: bytes, turn_id: str) -> bytes:
    """Return the running hash after a recorded turn."""
    return digest(previous, "turn", turn_id)


def text_key(previous: bytes, message: Message) -> bytes:
    """Return the key of an assistant message from its prefix and visible text, for echoes without an id.

    White space is ignored everywhere: clients trim lines and join paragraphs.
    """
    return digest(previous, "text", " ".join(message.content.split()), *(call.name for call in message.tool_calls))

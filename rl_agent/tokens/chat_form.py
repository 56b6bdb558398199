"""Messages in the form required by chat templates and the `renderers` library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rl_agent.tokens.messages import Role

if TYPE_CHECKING:
    from rl_agent.tokens.messages import Message, ToolCall
    from rl_agent.tokens.untrusted import Guard


def shown_message(message: Message, guard: Guard, *, role: Role | None = None) -> dict[str, Any]:
    """Return the message with untrusted text marked by `guard`. `role` replaces the message's role."""
    own = message.role is Role.ASSISTANT  # the policy's text may contain its own control tokens
    content = message.content if own else guard.text(message.content)
    shown: dict[str, Any] = {"role": (role or message.role).value, "content": content}
    if message.reasoning is not None:
        shown["reasoning_content"] = message.reasoning
    if message.tool_calls:
        shown["tool_calls"] = [_shown_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        shown["tool_call_id"] = message.tool_call_id
    if message.tool_name is not None:
        shown["name"] = message.tool_name
    return shown


def _shown_call(call: ToolCall) -> dict[str, Any]:
    arguments: Any = call.raw if call.arguments is None else dict(call.arguments)
    return {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": arguments}}

"""The OpenAI Chat Completions API, for agents that use neither Claude Code's nor Codex's API.

Requests carry no turn id and no sub-agent id. An assistant message is recognized by the ids of its calls, else by its
text, and a conversation by its beginning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from rl_agent.adapters.base import Action, HttpReply, ParsedRequest, RefusalReason
from rl_agent.adapters.body import (
    blocks_text,
    compile_drops,
    json_object,
    limit_of,
    list_of,
    object_of,
    optional_text,
    plain_object_of,
    refuse,
    text_of,
    without_dropped,
)
from rl_agent.tokens.fork import ChainKey
from rl_agent.tokens.messages import Conversation, Message, Role, ToolCall, ToolSpec
from rl_agent.tokens.tagged_reply import told_apart

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Mapping, Sequence

    from rl_agent.adapters.base import Refusal, Reply

_STATUS: Final = {
    RefusalReason.MALFORMED: (400, "invalid_request_error", "invalid_request"),
    RefusalReason.UNAUTHORIZED: (401, "invalid_request_error", "invalid_api_key"),
    RefusalReason.NOT_FOUND: (404, "invalid_request_error", "not_found"),
    RefusalReason.TOO_LARGE: (413, "invalid_request_error", "request_too_large"),
    RefusalReason.CONTEXT_FULL: (400, "invalid_request_error", "context_length_exceeded"),
    RefusalReason.OVERLOADED: (503, "server_error", "overloaded"),
    RefusalReason.SESSION_OVER: (400, "invalid_request_error", "session_over"),
}
_PATHS: Final = frozenset({"/v1/chat/completions", "/chat/completions"})
_ROLES: Final = {"system": Role.SYSTEM, "developer": Role.SYSTEM, "user": Role.USER}


class OpenAIChat:
    """POST {base}/v1/chat/completions and {base}/chat/completions."""

    def __init__(self, *, drop_system: Sequence[str] = ()) -> None:
        self._drops = compile_drops(drop_system)

    @property
    def name(self) -> str:
        """Name for logs and messages."""
        return "openai_chat"

    def action(self, path: str) -> Action | None:
        """Return the action of a POST to `path`."""
        return Action.GENERATE if path in _PATHS else None

    def parse(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> ParsedRequest:
        """Parse a request."""
        del headers
        if body.get("n") not in (None, 1):
            raise refuse("n", "only one choice is supported")
        if body.get("functions") is not None:
            raise refuse("functions", "unsupported. Send `tools`.")
        messages = tuple(_messages(list_of(body.get("messages"), "messages"), self._drops))
        if not messages:
            raise refuse("messages", "at least one message is required")
        tools = tuple(_tool(t, f"tools.{i}") for i, t in enumerate(list_of(body.get("tools"), "tools")))
        limits = [limit_of(body.get(key), key) for key in ("max_completion_tokens", "max_tokens")]
        return ParsedRequest(
            key=ChainKey(),
            conversation=Conversation(messages=messages, tools=tools),
            stream=body.get("stream") is True,
            model=optional_text(body.get("model"), "model"),
            max_tokens=min((limit for limit in limits if limit is not None), default=None),
        )

    def call_id(self, turn_id: str, index: int) -> str:
        """Return the id of a tool call."""
        return f"call_{turn_id}_{index}"

    def body(self, request: ParsedRequest, reply: Reply) -> bytes:
        """Return the reply as one JSON document."""
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
        if reply.reasoning is not None:
            message["reasoning_content"] = reply.reasoning
        if reply.calls:
            message["tool_calls"] = [_call_item(c) for c in reply.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(reply)}
        frame = _frame(request, f"chatcmpl-{reply.turn_id}", "chat.completion")
        return orjson.dumps(frame | {"choices": [choice], "usage": _usage(reply)})

    def events(self, request: ParsedRequest, reply: Reply, *, sent: int) -> bytes:
        """Return the reply as chunks: reasoning, text, each call in full, then the finish reason and the usage."""
        deltas: list[dict[str, Any]] = [] if sent else [{"role": "assistant", "content": ""}]
        if reply.reasoning is not None:
            deltas.append({"reasoning_content": reply.reasoning})
        if reply.text:
            deltas.append({"content": reply.text})
        deltas += [{"tool_calls": [{"index": i, **_call_item(c)}]} for i, c in enumerate(reply.calls)]
        frame = _frame(request, f"chatcmpl-{reply.turn_id}", "chat.completion.chunk")
        parts = [_chunk(frame, delta, None) for delta in deltas]
        parts.append(_chunk(frame, {}, _finish(reply)))
        parts.append(_data(frame | {"choices": [], "usage": _usage(reply)}))
        return b"".join([*parts, b"data: [DONE]\n\n"])

    def keepalive(self, request: ParsedRequest, *, sent: int) -> bytes:
        """Return an empty chunk. The first one starts the message."""
        delta = {} if sent else {"role": "assistant", "content": ""}
        return _chunk(_frame(request, "chatcmpl-pending", "chat.completion.chunk"), delta, None)

    def error(self, refusal: Refusal) -> HttpReply:
        """Return the refusal in the vendor's error format. The vendor's SDKs retry only after OVERLOADED."""
        status, kind, code = _STATUS[refusal.fault]
        message = refusal.message
        if refusal.fault is RefusalReason.CONTEXT_FULL:
            message = (
                f"This model's maximum context length is {refusal.max_tokens} tokens. However, your messages resulted in "
                f"{refusal.prompt_tokens} tokens."
            )
        body = orjson.dumps({"error": {"message": message, "type": kind, "code": code, "param": None}})
        headers = {} if refusal.fault is RefusalReason.OVERLOADED else {"x-should-retry": "false"}
        return HttpReply(status=status, body=body, headers=headers)

    def error_event(self, refusal: Refusal, *, sent: int) -> bytes:
        """Return the refusal as an event of a running stream."""
        del sent
        return b"data: " + self.error(refusal).body + b"\n\n"

    def token_count(self, tokens: int) -> bytes:
        """Return a well-formed response. This API has no such route."""
        return orjson.dumps({"prompt_tokens": tokens})


def _frame(request: ParsedRequest, name: str, kind: str) -> dict[str, Any]:
    return {"id": name, "object": kind, "created": 0, "model": request.model}


def _data(value: Mapping[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


def _chunk(frame: Mapping[str, Any], delta: Mapping[str, Any], finish: str | None) -> bytes:
    return _data({**frame, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]})


def _finish(reply: Reply) -> str:
    """Return the finish reason. Never `length`: agents would continue by themselves or fail."""
    return "tool_calls" if reply.calls else "stop"


def _usage(reply: Reply) -> dict[str, int]:
    total = reply.input_tokens + reply.output_tokens
    return {"prompt_tokens": reply.input_tokens, "completion_tokens": reply.output_tokens, "total_tokens": total}


def _call_item(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.raw}}


def _messages(entries: Sequence[Any], drops: Sequence[re.Pattern[str]]) -> Iterator[Message]:
    """Yield the messages of the conversation. Leading system texts become one message."""
    system: list[str] = []
    begun = False
    for i, value in enumerate(entries):
        message = _message(object_of(value, f"messages.{i}"), f"messages.{i}", drops)
        if message is None:
            continue
        if message.role is Role.SYSTEM and not begun:
            system.append(message.content)
            continue
        if not begun and system:
            yield Message(role=Role.SYSTEM, content="\n\n".join(system))
        begun = True
        yield message
    if not begun and system:
        yield Message(role=Role.SYSTEM, content="\n\n".join(system))


def _message(entry: Mapping[str, Any], place: str, drops: Sequence[re.Pattern[str]]) -> Message | None:
    """Return the message, or None for a system text that is dropped completely."""
    name = text_of(entry.get("role"), f"{place}.role")
    if name == "assistant":
        return _assistant(entry, place)
    content = blocks_text(entry.get("content"), f"{place}.content")
    if name == "tool":
        call_id = text_of(entry.get("tool_call_id"), f"{place}.tool_call_id")
        return Message(role=Role.TOOL, content=content, tool_call_id=call_id)
    role = _ROLES.get(name)
    if role is None:
        raise refuse(f"{place}.role", "Input should be 'system', 'developer', 'user', 'assistant' or 'tool'")
    if role is Role.SYSTEM:
        content = without_dropped(content, drops)
        if not content:
            return None
    return Message(role=role, content=content)


def _assistant(entry: Mapping[str, Any], place: str) -> Message:
    """Return an assistant message. Agents echo reasoning in a separate field, in the content, or not at all."""
    content = blocks_text(entry.get("content"), f"{place}.content")
    reasoning: str | None = None
    for key in ("reasoning_content", "reasoning"):
        if entry.get(key) is not None:
            reasoning = text_of(entry[key], f"{place}.{key}")
    inner, content = told_apart(content)
    calls = list_of(entry.get("tool_calls"), f"{place}.tool_calls")
    return Message(
        role=Role.ASSISTANT,
        content=content,
        reasoning=reasoning if inner is None else inner,
        tool_calls=tuple(_call(c, f"{place}.tool_calls.{i}") for i, c in enumerate(calls)),
    )


def _call(value: Any, place: str) -> ToolCall:
    call = object_of(value, place)
    function = object_of(call.get("function"), f"{place}.function")
    raw = text_of(function.get("arguments"), f"{place}.function.arguments")
    name = text_of(function.get("name"), f"{place}.function.name")
    return ToolCall(id=text_of(call.get("id"), f"{place}.id"), name=name, arguments=json_object(raw), raw=raw)


def _tool(value: Any, place: str) -> ToolSpec:
    tool = object_of(value, place)
    if tool.get("type") != "function":
        raise refuse(f"{place}.type", "Input should be 'function'")
    function = object_of(tool.get("function"), f"{place}.function")
    return ToolSpec(
        name=text_of(function.get("name"), f"{place}.function.name"),
        description=optional_text(function.get("description"), f"{place}.function.description"),
        parameters=plain_object_of(function.get("parameters") or {}, f"{place}.function.parameters"),
    )

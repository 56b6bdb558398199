"""The Anthropic Messages API as used by Claude Code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from rl_agent.adapters.base import Action, HttpReply, ParsedRequest, RefusalReason
from rl_agent.adapters.body import (
    block_text,
    blocks_text,
    compile_drops,
    header,
    limit_of,
    list_of,
    object_of,
    optional_text,
    plain_object_of,
    refuse,
    text_of,
    without_dropped,
)
from rl_agent.adapters.sse import event
from rl_agent.tokens.fork import ChainKey
from rl_agent.tokens.messages import Conversation, Message, Role, ToolCall, ToolSpec
from rl_agent.tokens.segment import SegmentKind

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Mapping, Sequence

    from rl_agent.adapters.base import Refusal, Reply

_COMPACTION: Final = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."
"""Start of Claude Code's request for a summary. No header marks this request."""
_SIGNATURE: Final = "rl_agent:"
"""Prefix of a thinking block's signature. The turn id follows. The client echoes the signature."""
_STATUS: Final = {
    RefusalReason.MALFORMED: (400, "invalid_request_error"),
    RefusalReason.UNAUTHORIZED: (401, "authentication_error"),
    RefusalReason.NOT_FOUND: (404, "not_found_error"),
    RefusalReason.TOO_LARGE: (413, "request_too_large"),
    RefusalReason.CONTEXT_FULL: (400, "invalid_request_error"),
    RefusalReason.OVERLOADED: (529, "overloaded_error"),
    RefusalReason.SESSION_OVER: (400, "invalid_request_error"),
}
_MAY_RETRY: Final = frozenset({RefusalReason.CONTEXT_FULL, RefusalReason.OVERLOADED})


class AnthropicMessages:
    """POST {base}/v1/messages and {base}/v1/messages/count_tokens."""

    def __init__(self, *, drop_system: Sequence[str] = ()) -> None:
        self._drops = compile_drops(drop_system)

    @property
    def name(self) -> str:
        """Name for logs and messages."""
        return "anthropic_messages"

    def action(self, path: str) -> Action | None:
        """Return the action of a POST to `path`."""
        return {"/v1/messages": Action.GENERATE, "/v1/messages/count_tokens": Action.COUNT_TOKENS}.get(path)

    def parse(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> ParsedRequest:
        """Parse a request."""
        raw = list_of(body.get("messages"), "messages")
        if not raw:
            raise refuse("messages", "at least one message is required")
        messages = [*_system(body.get("system"), self._drops)]
        for i, entry in enumerate(raw):
            messages += _messages(object_of(entry, f"messages.{i}"), f"messages.{i}", self._drops)
        tools = tuple(_tool(t, f"tools.{i}") for i, t in enumerate(list_of(body.get("tools"), "tools")))
        agent = header(headers, "x-claude-code-agent-id")
        kind = SegmentKind.SUBAGENT if agent else SegmentKind.MAIN
        if _asks_for_summary(raw):
            kind = SegmentKind.COMPACTION
        return ParsedRequest(
            key=ChainKey(agent=agent, kind=kind),
            conversation=Conversation(messages=tuple(messages), tools=tools),
            stream=body.get("stream") is True,
            model=optional_text(body.get("model"), "model"),
            max_tokens=limit_of(body.get("max_tokens"), "max_tokens"),
        )

    def call_id(self, turn_id: str, index: int) -> str:
        """Return the id of a tool call."""
        return f"toolu_{turn_id}_{index}"

    def body(self, request: ParsedRequest, reply: Reply) -> bytes:
        """Return the reply as one JSON document."""
        blocks: list[dict[str, Any]] = []
        if reply.reasoning is not None:
            blocks.append({"type": "thinking", "thinking": reply.reasoning, "signature": _SIGNATURE + reply.turn_id})
        if reply.text:
            blocks.append({"type": "text", "text": reply.text})
        blocks += [
            {"type": "tool_use", "id": c.id, "name": c.name, "input": orjson.Fragment(c.raw or "{}")}
            for c in reply.calls
        ]
        usage = {"input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens}
        message = _message(request, reply) | {"content": blocks, "stop_reason": _stop_reason(reply), "usage": usage}
        return orjson.dumps(message)

    def events(self, request: ParsedRequest, reply: Reply, *, sent: int) -> bytes:
        """Return the reply as events: thinking, one text block, then the calls. The client reorders any other order."""
        del sent
        usage = {"input_tokens": reply.input_tokens, "output_tokens": 1}
        parts = [
            event("message_start", {"type": "message_start", "message": _message(request, reply) | {"usage": usage}})
        ]
        for index, (start, deltas) in enumerate(_blocks(reply)):
            parts.append(
                event("content_block_start", {"type": "content_block_start", "index": index, "content_block": start})
            )
            parts += [
                event("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta})
                for delta in deltas
            ]
            parts.append(event("content_block_stop", {"type": "content_block_stop", "index": index}))
        delta = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
        final = {"input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens}
        parts.append(event("message_delta", {"type": "message_delta", "delta": delta, "usage": final}))
        parts.append(event("message_stop", {"type": "message_stop"}))
        return b"".join(parts)

    def keepalive(self, request: ParsedRequest, *, sent: int) -> bytes:
        """Return a ping event."""
        del request, sent
        return event("ping", {"type": "ping"})

    def error(self, refusal: Refusal) -> HttpReply:
        """Return the refusal in the vendor's error format. On a full context the client compacts or exits."""
        status, kind = _STATUS[refusal.fault]
        message = refusal.message
        if refusal.fault is RefusalReason.CONTEXT_FULL:
            message = f"prompt is too long: {refusal.prompt_tokens} tokens > {refusal.max_tokens} maximum"
        body = orjson.dumps({"type": "error", "error": {"type": kind, "message": message}})
        # Without this header the client retries up to ten times. On a full context it may retry after compacting.
        headers = {} if refusal.fault in _MAY_RETRY else {"x-should-retry": "false"}
        return HttpReply(status=status, body=body, headers=headers)

    def error_event(self, refusal: Refusal, *, sent: int) -> bytes:
        """Return the refusal as an event of a running stream."""
        del sent
        return event("error", orjson.loads(self.error(refusal).body))

    def token_count(self, tokens: int) -> bytes:
        """Return the response of count_tokens."""
        return orjson.dumps({"input_tokens": tokens})


def _message(request: ParsedRequest, reply: Reply) -> dict[str, Any]:
    return {
        "id": f"msg_{reply.turn_id}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _stop_reason(reply: Reply) -> str:
    """Return the stop reason. Never `max_tokens`: the client would continue by itself."""
    return "tool_use" if reply.calls else "end_turn"


def _blocks(reply: Reply) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yield (content_block of the start event, deltas) of each block."""
    if reply.reasoning is not None:
        signature = _SIGNATURE + reply.turn_id
        yield (
            {"type": "thinking", "thinking": "", "signature": ""},
            [
                {"type": "thinking_delta", "thinking": reply.reasoning},
                {"type": "signature_delta", "signature": signature},
            ],
        )
    if reply.text:
        yield {"type": "text", "text": ""}, [{"type": "text_delta", "text": reply.text}]
    for call in reply.calls:
        yield (
            {"type": "tool_use", "id": call.id, "name": call.name, "input": {}},
            [{"type": "input_json_delta", "partial_json": call.raw}],
        )


def _system(system: Any, drops: Sequence[re.Pattern[str]]) -> Iterator[Message]:
    """Yield the leading system message unless all of it is dropped."""
    if isinstance(system, list):
        texts = [block_text(block, f"system.{i}") for i, block in enumerate(system)]
    else:
        texts = [optional_text(system, "system")]
    kept = [shown for shown in (without_dropped(text, drops) for text in texts) if shown]
    if kept:
        yield Message(role=Role.SYSTEM, content="\n\n".join(kept))


def _messages(entry: Mapping[str, Any], place: str, drops: Sequence[re.Pattern[str]]) -> Iterator[Message]:
    role, content = entry.get("role"), entry.get("content")
    if role == "assistant":
        yield _assistant(content, f"{place}.content")
    elif role == "system":
        shown = without_dropped(blocks_text(content, f"{place}.content"), drops)
        if shown:
            yield Message(role=Role.SYSTEM, content=shown)
    elif role == "user":
        yield from _user(content, f"{place}.content")
    else:
        raise refuse(f"{place}.role", "Input should be 'user', 'assistant' or 'system'")


def _user(content: Any, place: str) -> Iterator[Message]:
    """Yield each tool result as its own message and adjacent texts as one message."""
    if isinstance(content, str):
        yield Message(role=Role.USER, content=content)
        return
    texts: list[str] = []
    for i, value in enumerate(list_of(content, place)):
        block = object_of(value, f"{place}.{i}")
        if block.get("type") != "tool_result":
            texts.append(block_text(block, f"{place}.{i}"))
            continue
        if texts:
            yield Message(role=Role.USER, content="\n".join(texts))
            texts = []
        yield Message(
            role=Role.TOOL,
            content=blocks_text(block.get("content"), f"{place}.{i}.content"),
            tool_call_id=text_of(block.get("tool_use_id"), f"{place}.{i}.tool_use_id"),
            failed=block.get("is_error") is True,
        )
    if texts:
        yield Message(role=Role.USER, content="\n".join(texts))


def _assistant(content: Any, place: str) -> Message:
    if isinstance(content, str):
        return Message(role=Role.ASSISTANT, content=content)
    texts: list[str] = []
    reasoning: str | None = None
    turn_id: str | None = None
    calls: list[ToolCall] = []
    for i, value in enumerate(list_of(content, place)):
        block = object_of(value, f"{place}.{i}")
        kind = block.get("type")
        if kind == "tool_use":
            calls.append(_call(block, f"{place}.{i}"))
        elif kind == "thinking":
            reasoning = (reasoning or "") + optional_text(block.get("thinking"), f"{place}.{i}.thinking")
            signature = optional_text(block.get("signature"), f"{place}.{i}.signature")
            if signature.startswith(_SIGNATURE):
                turn_id = signature.removeprefix(_SIGNATURE)
        elif kind != "redacted_thinking":
            texts.append(block_text(block, f"{place}.{i}"))
    return Message(
        role=Role.ASSISTANT, content="\n".join(texts), reasoning=reasoning, tool_calls=tuple(calls), turn_id=turn_id
    )


def _call(block: Mapping[str, Any], place: str) -> ToolCall:
    arguments = plain_object_of(block.get("input", {}), f"{place}.input")
    return ToolCall(
        id=text_of(block.get("id"), f"{place}.id"),
        name=text_of(block.get("name"), f"{place}.name"),
        arguments=arguments,
        raw=orjson.dumps(arguments).decode(),
    )


def _tool(value: Any, place: str) -> ToolSpec:
    tool = object_of(value, place)
    return ToolSpec(
        name=text_of(tool.get("name"), f"{place}.name"),
        description=optional_text(tool.get("description"), f"{place}.description"),
        parameters=plain_object_of(tool.get("input_schema", {}), f"{place}.input_schema"),
    )


def _asks_for_summary(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the last user message ends with the compaction text. A system message may follow it."""
    for entry in reversed(messages):
        if entry.get("role") == "system":
            continue
        content = entry.get("content")
        if entry.get("role") != "user":
            return False
        last = content[-1] if isinstance(content, list) and content else content
        text = last.get("text") if isinstance(last, dict) else last
        return isinstance(text, str) and text.lstrip().startswith(_COMPACTION)
    return False

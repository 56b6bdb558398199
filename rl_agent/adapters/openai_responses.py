"""The OpenAI Responses API as used by Codex: stateless, with the whole history in `input` each time."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import orjson

from rl_agent.adapters.base import Action, HttpReply, ParsedRequest, RefusalReason
from rl_agent.adapters.body import compile_drops, header, limit_of, optional_text, refuse
from rl_agent.adapters.responses_input import read_input, read_tools
from rl_agent.adapters.sse import event
from rl_agent.tokens.fork import ChainKey
from rl_agent.tokens.messages import Conversation, ToolKind
from rl_agent.tokens.segment import SegmentKind
from rl_agent.tokens.tool_text import CUSTOM_INPUT, shown_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rl_agent.adapters.base import Refusal, Reply
    from rl_agent.tokens.messages import ToolCall, ToolSpec

_STATUS: Final = {
    RefusalReason.MALFORMED: (400, "invalid_request_error", "invalid_prompt"),
    RefusalReason.UNAUTHORIZED: (401, "invalid_request_error", "invalid_api_key"),
    RefusalReason.NOT_FOUND: (404, "invalid_request_error", "not_found"),
    RefusalReason.TOO_LARGE: (413, "invalid_request_error", "request_too_large"),
    RefusalReason.CONTEXT_FULL: (400, "invalid_request_error", "context_length_exceeded"),
    RefusalReason.OVERLOADED: (503, "server_error", "server_error"),
    RefusalReason.SESSION_OVER: (400, "invalid_request_error", "invalid_prompt"),
}
"""SESSION_OVER must be 400: the client then fails its turn at once. It retries or special-cases 429 and 5xx."""
_PATHS: Final = frozenset({"/v1/responses", "/responses"})


class OpenAIResponses:
    """POST {base}/v1/responses and {base}/responses."""

    def __init__(self, *, drop_system: Sequence[str] = ()) -> None:
        self._drops = compile_drops(drop_system)

    @property
    def name(self) -> str:
        """Name for logs and messages."""
        return "openai_responses"

    def action(self, path: str) -> Action | None:
        """Return the action of a POST to `path`."""
        return Action.GENERATE if path in _PATHS else None

    def parse(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> ParsedRequest:
        """Parse a request."""
        if body.get("previous_response_id") is not None:
            raise refuse(
                "previous_response_id", "unsupported: responses are not stored. Send the whole history as `input`."
            )
        if body.get("store") is True:
            raise refuse("store", "unsupported: responses are not stored. Send `store: false`.")
        instructions = optional_text(body.get("instructions"), "instructions")
        messages = read_input(body.get("input"), instructions, self._drops)
        if not messages:
            raise refuse("input", "at least one item is required")
        return ParsedRequest(
            key=_key(headers),
            conversation=Conversation(messages=messages, tools=read_tools(body.get("tools"))),
            stream=body.get("stream") is True,
            model=optional_text(body.get("model"), "model"),
            max_tokens=limit_of(body.get("max_output_tokens"), "max_output_tokens"),
        )

    def call_id(self, turn_id: str, index: int) -> str:
        """Return the id of a tool call."""
        return f"call_{turn_id}_{index}"

    def body(self, request: ParsedRequest, reply: Reply) -> bytes:
        """Return the reply as one JSON document."""
        return orjson.dumps(_response(request, reply, "completed"))

    def events(self, request: ParsedRequest, reply: Reply, *, sent: int) -> bytes:
        """Return the reply as events."""
        parts: list[tuple[str, dict[str, Any]]] = []
        if not sent:
            parts.append(("response.created", {"response": _response(request, None, "in_progress")}))
        for index, item in enumerate(_items(request, reply)):
            parts.append(
                ("response.output_item.added", {"output_index": index, "item": item | {"status": "in_progress"}})
            )
            parts += _deltas(item, index)
            parts.append(("response.output_item.done", {"output_index": index, "item": item}))
        parts.append(("response.completed", {"response": _response(request, reply, "completed")}))
        return b"".join(_event(name, sent + number, data) for number, (name, data) in enumerate(parts))

    def keepalive(self, request: ParsedRequest, *, sent: int) -> bytes:
        """Return a typed event. The client's idle timer ignores comments."""
        name = "response.in_progress" if sent else "response.created"
        return _event(name, sent, {"response": _response(request, None, "in_progress")})

    def error(self, refusal: Refusal) -> HttpReply:
        """Return the refusal in the vendor's error format."""
        status, kind, code = _STATUS[refusal.fault]
        body = orjson.dumps({"error": {"message": _words(refusal), "type": kind, "code": code, "param": None}})
        return HttpReply(status=status, body=body)

    def error_event(self, refusal: Refusal, *, sent: int) -> bytes:
        """Return the refusal as an event of a running stream."""
        failed = {
            "id": "resp_failed",
            "object": "response",
            "status": "failed",
            "error": {"code": _STATUS[refusal.fault][2], "message": _words(refusal)},
            "output": [],
        }
        return _event("response.failed", sent, {"response": failed})

    def token_count(self, tokens: int) -> bytes:
        """Return a well-formed response. This API has no such route."""
        return orjson.dumps({"object": "response.input_tokens", "input_tokens": tokens})


def _words(refusal: Refusal) -> str:
    if refusal.fault is not RefusalReason.CONTEXT_FULL:
        return refusal.message
    return (
        f"Your input exceeds the context window of this model: {refusal.prompt_tokens} tokens, "
        f"at most {refusal.max_tokens} fit."
    )


def _key(headers: Mapping[str, str]) -> ChainKey:
    """Return the chain of a request. A sub-agent names its parent thread; the turn's metadata marks a compaction."""
    metadata: Any = {}
    # The agent's side writes the headers. Without valid metadata, the conversation identifies the chain.
    with suppress(orjson.JSONDecodeError):
        metadata = orjson.loads(header(headers, "x-codex-turn-metadata") or b"{}")
    if not isinstance(metadata, dict):
        metadata = {}
    child = bool(header(headers, "x-openai-subagent") or header(headers, "x-codex-parent-thread-id"))
    child = child or metadata.get("thread_source") == "subagent"
    agent = header(headers, "thread-id") if child else ""
    kind = SegmentKind.SUBAGENT if child else SegmentKind.MAIN
    if metadata.get("request_kind") == "compaction":
        kind = SegmentKind.COMPACTION
    return ChainKey(agent=agent, kind=kind)


def _event(name: str, number: int, data: Mapping[str, Any]) -> bytes:
    return event(name, {"type": name, "sequence_number": number, **data})


def _response(request: ParsedRequest, reply: Reply | None, status: str) -> dict[str, Any]:
    response: dict[str, Any] = {
        "id": "resp_pending" if reply is None else f"resp_{reply.turn_id}",
        "object": "response",
        "created_at": 0,
        "status": status,
        "model": request.model,
        "output": [] if reply is None else list(_items(request, reply)),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "error": None,
        "incomplete_details": None,
        "usage": None,
    }
    if reply is not None:
        response["usage"] = {
            "input_tokens": reply.input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": reply.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": reply.input_tokens + reply.output_tokens,
        }
    return response


def _items(request: ParsedRequest, reply: Reply) -> Iterator[dict[str, Any]]:
    """Yield the output items. Each id contains the turn's id, which the client echoes."""
    if reply.reasoning is not None:
        yield {
            "type": "reasoning",
            "id": f"rs_{reply.turn_id}",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": reply.reasoning}],
            "encrypted_content": f"rl_agent:{reply.turn_id}",
        }
    if reply.text:
        yield {
            "type": "message",
            "id": f"msg_{reply.turn_id}",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": reply.text, "annotations": []}],
        }
    tools = {shown_name(t): t for t in request.conversation.tools}
    for index, call in enumerate(reply.calls):
        yield _call_item(call, tools.get(call.name), f"{reply.turn_id}_{index}")


def _call_item(call: ToolCall, tool: ToolSpec | None, suffix: str) -> dict[str, Any]:
    """Return a call's item. A custom tool needs a custom call with text. An unknown tool's name is kept as called."""
    name = call.name if tool is None else tool.name
    if tool is not None and tool.kind is ToolKind.CUSTOM:
        value = (call.arguments or {}).get(CUSTOM_INPUT)
        text = value if isinstance(value, str) else call.raw
        item = {"type": "custom_tool_call", "id": f"ctc_{suffix}", "call_id": call.id, "name": name, "input": text}
    else:
        item = {"type": "function_call", "id": f"fc_{suffix}", "call_id": call.id, "name": name, "arguments": call.raw}
    if tool is not None and tool.namespace:
        item["namespace"] = tool.namespace
    return item | {"status": "completed"}


def _deltas(item: Mapping[str, Any], index: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the events inside an item, for clients that show text as it arrives."""
    place = {"item_id": item["id"], "output_index": index}
    if item["type"] == "message":
        part = item["content"][0]
        at = place | {"content_index": 0}
        yield "response.content_part.added", at | {"part": part | {"text": ""}}
        yield "response.output_text.delta", at | {"delta": part["text"]}
        yield "response.output_text.done", at | {"text": part["text"]}
        yield "response.content_part.done", at | {"part": part}
    elif item["type"] == "function_call":
        yield "response.function_call_arguments.delta", place | {"delta": item["arguments"]}
        yield "response.function_call_arguments.done", place | {"arguments": item["arguments"]}
    elif item["type"] == "custom_tool_call":
        yield "response.custom_tool_call_input.delta", place | {"delta": item["input"]}
        yield "response.custom_tool_call_input.done", place | {"input": item["input"]}

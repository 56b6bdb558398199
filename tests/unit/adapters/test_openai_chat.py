"""Chat Completions: reading what agents send, writing what their SDKs read."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from rl_agent.adapters.base import Action, Refusal, RefusalReason, RefusedError, Reply
from rl_agent.adapters.openai_chat import OpenAIChat
from rl_agent.tokens.messages import Role, ToolCall

CHAT = OpenAIChat(drop_system=["You are .*"])
USER = {"role": "user", "content": "hi"}
CALLS = (
    ToolCall(id="call_t1_0", name="Bash", arguments={"command": "ls"}, raw='{"command":  "ls"}'),
    ToolCall(id="call_t1_1", name="Read", arguments={}, raw="{}"),
)
REPLY = Reply(turn_id="t1", text="I look.", reasoning="hm", calls=CALLS, input_tokens=10, output_tokens=5)


def parse(**body: Any) -> Any:
    return CHAT.parse({"model": "m", "messages": [USER], **body}, {})


def chunks(raw: bytes) -> list[Any]:
    parts = raw.decode().strip().split("\n\n")
    assert parts[-1] == "data: [DONE]"
    return [orjson.loads(part.removeprefix("data: ")) for part in parts[:-1]]


def test_both_paths_generate_and_others_do_not() -> None:
    assert CHAT.action("/v1/chat/completions") is CHAT.action("/chat/completions") is Action.GENERATE
    assert CHAT.action("/v1/messages") is None


def test_leading_system_texts_are_one_message_without_what_is_dropped() -> None:
    system = [{"role": "system", "content": "You are a robot."}, {"role": "developer", "content": "Fix."}]
    request = parse(
        messages=[*system, {"role": "system", "content": "Now."}, USER, {"role": "system", "content": "More."}]
    )
    assert [(m.role, m.content) for m in request.conversation.messages] == [
        (Role.SYSTEM, "Fix.\n\nNow."),
        (Role.USER, "hi"),
        (Role.SYSTEM, "More."),
    ]


def test_a_history_with_parallel_calls_is_read() -> None:
    calls = [{"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.raw}} for c in CALLS]
    echo = {"role": "assistant", "content": None, "tool_calls": calls, "reasoning_content": "hm"}
    results = [{"role": "tool", "tool_call_id": c.id, "content": [{"type": "text", "text": "out"}]} for c in CALLS]
    messages = parse(messages=[USER, echo, *results]).conversation.messages
    assert [(c.id, c.raw) for c in messages[1].tool_calls] == [(c.id, c.raw) for c in CALLS]
    assert messages[1].reasoning == "hm"
    assert [(m.tool_call_id, m.content) for m in messages[2:]] == [(c.id, "out") for c in CALLS]


def test_reasoning_inside_the_content_is_told_apart() -> None:
    echo = {"role": "assistant", "content": "<think>hm</think>\nDone."}
    message = parse(messages=[USER, echo, USER]).conversation.messages[1]
    assert (message.reasoning, message.content.strip()) == ("hm", "Done.")


@pytest.mark.parametrize(
    "body",
    [
        {"messages": []},
        {"messages": None},
        {"n": 2},
        {"functions": []},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": "function", "content": "x"}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f"}}]}]},
        {"tools": [{"type": "web_search"}]},
        {"max_tokens": 0},
    ],
)
def test_what_cannot_be_served_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(RefusedError):
        parse(**body)


def test_the_lower_limit_counts() -> None:
    assert parse(max_tokens=50, max_completion_tokens=20).max_tokens == 20
    assert parse().max_tokens is None


def test_a_reply_keeps_parallel_calls_and_their_raw_arguments() -> None:
    document = orjson.loads(CHAT.body(parse(), REPLY))
    (choice,) = document["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "I look."
    assert choice["message"]["reasoning_content"] == "hm"
    assert [c["function"]["arguments"] for c in choice["message"]["tool_calls"]] == [c.raw for c in CALLS]
    assert document["usage"] == {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


@pytest.mark.parametrize("sent", [0, 2])
def test_a_stream_says_the_same_as_the_document(sent: int) -> None:
    request = parse(stream=True)
    before = b"".join(CHAT.keepalive(request, sent=number) for number in range(sent))
    got = chunks(before + CHAT.events(request, REPLY, sent=sent))
    deltas = [c["choices"][0]["delta"] for c in got if c["choices"]]
    assert [d["role"] for d in deltas if "role" in d] == ["assistant"]
    assert "".join(d.get("content") or "" for d in deltas) == "I look."
    assert "".join(d.get("reasoning_content", "") for d in deltas) == "hm"
    calls = [c for d in deltas for c in d.get("tool_calls", [])]
    assert [(c["index"], c["id"], c["function"]["arguments"]) for c in calls] == [
        (i, c.id, c.raw) for i, c in enumerate(CALLS)
    ]
    assert [c["choices"][0]["finish_reason"] for c in got if c["choices"]][-1] == "tool_calls"
    assert got[-1]["usage"]["total_tokens"] == 15


@pytest.mark.parametrize("fault", RefusalReason)
def test_only_overload_may_be_tried_again(fault: RefusalReason) -> None:
    reply = CHAT.error(Refusal(fault=fault, message="no", prompt_tokens=9, max_tokens=5))
    assert orjson.loads(reply.body)["error"]["message"]
    assert (reply.status >= 429) is (fault is RefusalReason.OVERLOADED)
    assert ("x-should-retry" in reply.headers) is (fault is not RefusalReason.OVERLOADED)
    assert CHAT.error_event(Refusal(fault=fault, message="no"), sent=1).startswith(b"data: ")

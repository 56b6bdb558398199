"""Scripted agent programs without a process: they keep a history as the CLIs do, and drift as the CLIs do."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import orjson

from rl_agent.adapters.anthropic_messages import AnthropicMessages
from rl_agent.adapters.base import Refusal
from rl_agent.adapters.openai_chat import OpenAIChat
from rl_agent.adapters.openai_responses import OpenAIResponses
from rl_agent.tokens.turn import FinishReason, Generation, VersionSpan

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from rl_agent.adapters.base import Dialect
    from rl_agent.adapters.session import Session
    from rl_agent.tokens.template_renderer import TemplateRenderer
    from rl_agent.tokens.turn import Int32, Sampling

WORDS = [
    "the",
    "return",
    "value",
    "of",
    "a",
    "function",
    "is",
    "wrong",
    "when",
    "first",
    "argument",
    "second",
    "list",
    "index",
    "empty",
    "file",
    "test",
    "path",
    "error",
    "line",
    "print",
    "import",
    "class",
    "self",
    "def",
    "assert",
    "raise",
    "none",
    "true",
    "false",
    "loop",
    "while",
    "until",
    "check",
    "patch",
    "apply",
    "build",
    "module",
    "name",
    "string",
    "number",
]
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}, "timeout": {"type": "number"}}}
COMPACTION = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools. Sum up."


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as the client keeps it."""

    id: str
    name: str
    raw: str


@dataclass(frozen=True, slots=True)
class Echo:
    """A reply as the client keeps it."""

    document: dict[str, Any]
    text: str
    reasoning: str | None
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Results:
    """What the tools gave; `reminder` is a text of the agent program that comes with it."""

    outputs: tuple[tuple[str, str], ...]
    reminder: str | None = None


Entry = str | Echo | Results


class Wire(Protocol):
    """How one dialect writes a history and reads a reply."""

    dialect: Dialect

    def body(self, system: str, history: Sequence[Entry], *, tools: bool) -> dict[str, Any]:
        """A request."""

    def read(self, document: dict[str, Any]) -> Echo:
        """What the client keeps of a reply."""

    def headers(self, agent: str, *, compacting: bool) -> dict[str, str]:
        """The headers that name the chain."""


class Claude:
    """Claude Code's form."""

    def __init__(self) -> None:
        self.dialect: Dialect = AnthropicMessages()

    def body(self, system: str, history: Sequence[Entry], *, tools: bool) -> dict[str, Any]:
        """See `Wire`."""
        messages: list[dict[str, Any]] = []
        for entry in history:
            if isinstance(entry, str):
                blocks: list[dict[str, Any]] = [{"type": "text", "text": entry}]
            elif isinstance(entry, Results):
                blocks = [{"type": "tool_result", "tool_use_id": i, "content": text} for i, text in entry.outputs]
                blocks += [{"type": "text", "text": entry.reminder}] if entry.reminder else []
            else:
                blocks = self._echo(entry)
            messages.append({"role": "assistant" if isinstance(entry, Echo) else "user", "content": blocks})
        tool = {"name": "Bash", "description": "Runs a command.", "input_schema": SCHEMA}
        shown = [{"type": "text", "text": system}]
        return {
            "model": "m",
            "max_tokens": 8192,
            "system": shown,
            "messages": messages,
            "tools": [tool] if tools else [],
        }

    def _echo(self, echo: Echo) -> list[dict[str, Any]]:
        thinking = [b for b in echo.document["content"] if b["type"] == "thinking"] if echo.reasoning else []
        text = [{"type": "text", "text": echo.text}] if echo.text else []
        calls = [{"type": "tool_use", "id": c.id, "name": c.name, "input": orjson.loads(c.raw)} for c in echo.calls]
        return [*thinking, *text, *calls]

    def read(self, document: dict[str, Any]) -> Echo:
        """See `Wire`."""
        blocks = document["content"]
        calls = [Call(b["id"], b["name"], orjson.dumps(b["input"]).decode()) for b in blocks if b["type"] == "tool_use"]
        thinking = [b["thinking"] for b in blocks if b["type"] == "thinking"]
        text = "\n".join(b["text"] for b in blocks if b["type"] == "text")
        return Echo(document, text, thinking[0] if thinking else None, tuple(calls))

    def headers(self, agent: str, *, compacting: bool) -> dict[str, str]:
        """See `Wire`."""
        del compacting
        return {"x-claude-code-agent-id": agent} if agent else {}


class Codex:
    """Codex's form."""

    def __init__(self) -> None:
        self.dialect: Dialect = OpenAIResponses()

    def body(self, system: str, history: Sequence[Entry], *, tools: bool) -> dict[str, Any]:
        """See `Wire`."""
        items: list[dict[str, Any]] = [_message("developer", system)]
        for entry in history:
            if isinstance(entry, str):
                items.append(_message("user", entry))
            elif isinstance(entry, Results):
                items += [{"type": "function_call_output", "call_id": i, "output": text} for i, text in entry.outputs]
                items += [_message("user", entry.reminder)] if entry.reminder else []
            else:
                items += self._echo(entry)
        tool = {"type": "function", "name": "Bash", "description": "Runs a command.", "parameters": SCHEMA}
        return {"model": "m", "store": False, "input": items, "tools": [tool] if tools else []}

    def _echo(self, echo: Echo) -> list[dict[str, Any]]:
        raws = {c.id: c.raw for c in echo.calls}
        items = []
        for item in echo.document["output"]:
            if item["type"] == "message":
                items.append(item | {"content": [{"type": "output_text", "text": echo.text}]})
            elif item["type"] == "function_call":
                items.append(item | {"arguments": raws[item["call_id"]]})
            elif echo.reasoning:
                items.append(item)
        return items

    def read(self, document: dict[str, Any]) -> Echo:
        """See `Wire`."""
        items = document["output"]
        calls = [Call(i["call_id"], i["name"], i["arguments"]) for i in items if i["type"] == "function_call"]
        texts = [i["content"][0]["text"] for i in items if i["type"] == "message"]
        thoughts = [i["content"][0]["text"] for i in items if i["type"] == "reasoning"]
        return Echo(document, "".join(texts), "".join(thoughts) or None, tuple(calls))

    def headers(self, agent: str, *, compacting: bool) -> dict[str, str]:
        """See `Wire`."""
        found = {"x-openai-subagent": "collab_spawn", "thread-id": agent} if agent else {}
        return found | ({"x-codex-turn-metadata": '{"request_kind": "compaction"}'} if compacting else {})


class Chat:
    """The form of agents that speak Chat Completions; nothing names a sub-agent."""

    def __init__(self) -> None:
        self.dialect: Dialect = OpenAIChat()

    def body(self, system: str, history: Sequence[Entry], *, tools: bool) -> dict[str, Any]:
        """See `Wire`."""
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}]
        for entry in history:
            if isinstance(entry, str):
                messages.append({"role": "user", "content": entry})
            elif isinstance(entry, Results):
                messages += [{"role": "tool", "tool_call_id": i, "content": text} for i, text in entry.outputs]
                messages += [{"role": "user", "content": entry.reminder}] if entry.reminder else []
            else:
                calls = [
                    {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.raw}}
                    for c in entry.calls
                ]
                shown: dict[str, Any] = {"role": "assistant", "content": entry.text or None}
                shown |= {"reasoning_content": entry.reasoning} if entry.reasoning else {}
                messages.append(shown | ({"tool_calls": calls} if calls else {}))
        tool = {"type": "function", "function": {"name": "Bash", "description": "Runs.", "parameters": SCHEMA}}
        return {"model": "m", "messages": messages, **({"tools": [tool]} if tools else {})}

    def read(self, document: dict[str, Any]) -> Echo:
        """See `Wire`."""
        message = document["choices"][0]["message"]
        calls = [
            Call(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", [])
        ]
        return Echo(document, message["content"] or "", message.get("reasoning_content"), tuple(calls))

    def headers(self, agent: str, *, compacting: bool) -> dict[str, str]:
        """See `Wire`."""
        del agent, compacting
        return {}


def _message(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


WIRES: dict[str, type[Claude] | type[Codex] | type[Chat]] = {"claude_code": Claude, "codex": Codex, "chat": Chat}


class InstantEngine:
    """Says at once what it was told to say next; counts what it sampled."""

    def __init__(self, renderer: TemplateRenderer) -> None:
        self._renderer = renderer
        self.lines: deque[str] = deque()
        self.sampled: list[Int32] = []
        self.prompts: list[int] = []

    async def generate(self, tokens: Int32, sampling: Sampling, *, request_id: str, priority: int = 0) -> Generation:
        """The next line."""
        del request_id, priority
        made = self._renderer.tokens(self.lines.popleft())[: sampling.max_tokens]
        self.prompts.append(len(tokens))
        self.sampled.append(made)
        span = VersionSpan(version=1, start=0, end=len(made))
        logprobs = np.full(len(made), -0.5, dtype=np.float32)
        return Generation(tokens=made, logprobs=logprobs, finish_reason=FinishReason.STOP, spans=(span,))


@dataclass(slots=True)
class Agent:
    """One agent run: main chain and sub-agents against one session."""

    session: Session
    wire: Wire
    engine: InstantEngine
    rng: random.Random
    output_words: int = 40
    chains: dict[str, int] = field(default_factory=dict)
    """Chain -> tokens of one linear sequence of it, as the engine saw them."""
    asked: int = 0

    def words(self, count: int) -> str:
        """Some prose."""
        return " ".join(self.rng.choices(WORDS, k=count))

    def line(self, calls: int, *, thinks: bool = True) -> str:
        """What the policy is to say."""
        thought = f"<think>{self.words(12)}</think>" if thinks else ""
        shown = [
            f'<tool_call>{{"name": "Bash", "arguments": {{"command":  "{self.words(6)}", "timeout": 5000.0}}}}</tool_call>'
            for _ in range(calls)
        ]
        return f"{thought}{self.words(8)}.\n{self.words(5)}." + "".join(shown) + "<|im_end|>"

    def broken_line(self) -> str:
        """Thoughts, and a call that cannot be read."""
        return f'<think>{self.words(12)}</think>{self.words(8)}.<tool_call>{{"name": oops</tool_call><|im_end|>'

    async def ask(
        self, chain: str, system: str, history: Sequence[Entry], line: str | None, *, agent: str = "", kind: str = ""
    ) -> Echo:
        """One request of the chain; `line` None: a retry, for which nothing may be sampled."""
        if line is not None:
            self.engine.lines.append(line)
        compacting = kind == "compaction"
        tools = not (compacting and isinstance(self.wire, Codex))
        body = orjson.loads(orjson.dumps(self.wire.body(system, history, tools=tools)))
        request = self.wire.dialect.parse(body, self.wire.headers(agent, compacting=compacting))
        async with self.session.ask(request, self.wire.dialect) as outcome:
            reply = await outcome
        if isinstance(reply, Refusal):
            raise SystemExit(f"refused: {reply}")
        self.session.delivered(reply)
        if line is not None:
            self.asked += 1
            self.chains[chain] = self.engine.prompts[-1] + len(self.engine.sampled[-1])
        return self.wire.read(orjson.loads(self.wire.dialect.body(request, reply)))

    def results(self, echo: Echo, *, shuffled: bool = False, reminder: str | None = None) -> Results:
        """The outputs of a reply's calls."""
        outputs = [(c.id, self.words(self.output_words)) for c in echo.calls]
        return Results(tuple(outputs[::-1] if shuffled else outputs), reminder)


def padded(echo: Echo) -> Echo:
    """The calls' arguments with other white space, other order, a default put first, a float made an integer."""
    calls = []
    for call in echo.calls:
        arguments = orjson.loads(call.raw)
        changed = {"replace_all": False, **dict(reversed(arguments.items())), "timeout": 5000}
        calls.append(replace(call, raw=orjson.dumps(changed, option=orjson.OPT_INDENT_2).decode()))
    return replace(echo, calls=tuple(calls))


def spaced(echo: Echo) -> Echo:
    """The text with white space changed inside and around."""
    return replace(echo, text=echo.text.replace("\n", "\n\n") + "\n")

"""Turns of one agent run as a tree: finds the recorded turn that a request continues, and builds the exact prompt.

Invariants
- A prompt is its parent's recorded tokens followed by the rendered new messages (law 2). Recorded tokens are never
  rendered again. If that is impossible, a new root is rendered in full and the fork is counted by reason.
- The client's echoes only decide which turn is the parent: see `fingerprint`.
- Paths from root to leaf become segments. A turn on several paths trains only in the first one (law 1).
- The cost of a request is hashing its messages, rendering its new messages and copying the prompt once.

All methods are synchronous. The adapter's session calls one at a time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from rl_agent.errors import LawError
from rl_agent.tokens.fingerprint import digest, message_digest, text_key, turn_digest
from rl_agent.tokens.fork import ChainKey, ForkReason, RootForm, why_new_root
from rl_agent.tokens.ledger import ExclusionReason, Ledger
from rl_agent.tokens.linearize import TurnNode, linearize
from rl_agent.tokens.messages import Message, Role
from rl_agent.tokens.segment import SegmentKind
from rl_agent.tokens.tagged_reply import told_apart
from rl_agent.tokens.turn import Turn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rl_agent.tokens.messages import Conversation, ParsedReply
    from rl_agent.tokens.renderer import Renderer
    from rl_agent.tokens.segment import Segment
    from rl_agent.tokens.turn import Generation, Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Position of a request in the tree. Two requests are equal if and only if their `fingerprint` is equal (law 7)."""

    key: ChainKey
    conversation: Conversation
    fingerprint: bytes
    prompt_hash: bytes
    """Running hash after the last message."""
    parent_id: str | None
    """Deepest recorded turn in the request."""
    new_messages: tuple[Message, ...]
    """New messages after the parent turn, or the whole conversation for a root."""
    form: RootForm

    @property
    def continues(self) -> bool:
        """Return whether the messages allow continuing the parent, so that only the new messages are rendered."""
        new = self.new_messages
        return self.parent_id is not None and bool(new) and all(m.role is not Role.ASSISTANT for m in new)

    @property
    def size(self) -> int:
        """Return the size of the new messages; see `Message.size`."""
        return sum(m.size for m in self.new_messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Tokens to continue, and the data that the graph needs to commit the reply."""

    turn_id: str
    kind: SegmentKind
    tokens: Int32
    """[T] int32: the full prompt."""
    new_tokens: Int32
    """[T] int32: the new tokens at its end. For a root, the full prompt."""
    parent_id: str | None
    fork: ForkReason | None
    located: Located


@dataclass(slots=True)
class SessionGraph:
    """Turns of one agent run as a tree. See the module docstring."""

    renderer: Renderer
    max_segment_tokens: int | None = None
    """Maximum length of a segment; longer ones are cut. None: no limit."""
    forks: Counter[ForkReason] = field(default_factory=Counter)
    _nodes: dict[str, TurnNode] = field(default_factory=dict)
    _by_hash: dict[bytes, str] = field(default_factory=dict)
    """Running hash after a turn's reply -> turn."""
    _by_text: dict[bytes, str] = field(default_factory=dict)
    """`text_key` of a turn's reply -> turn."""
    _by_words: dict[bytes, str] = field(default_factory=dict)
    """Reply content -> turn. It shows that the client kept the reply."""
    _by_call: dict[str, str] = field(default_factory=dict)
    """Tool-call id -> turn."""
    _roots: dict[str, list[RootForm]] = field(default_factory=dict)
    _lost: list[tuple[str, int, ExclusionReason]] = field(default_factory=list)
    _prompts: int = 0

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Return all turns in order of commit."""
        return tuple(n.turn for n in self._nodes.values())

    def locate(self, key: ChainKey, conversation: Conversation) -> Located:
        """Find the deepest recorded turn in a request. Changes only which replies count as echoed."""
        form = RootForm.of(conversation)
        running = digest(b"", "agent", key.agent, form.tools.hex())
        parent_id: str | None = None
        after = 0
        for i, message in enumerate(conversation.messages):
            turn_id = self._recognise(running, message) if message.role is Role.ASSISTANT else None
            if turn_id is None:
                running = message_digest(running, message)
                if message.role is Role.ASSISTANT and (said := self._by_words.get(text_key(b"", message))) is not None:
                    self._nodes[said].acknowledged = True
                continue
            running = turn_digest(running, turn_id)
            self._nodes[turn_id].acknowledged = True
            if self._by_hash.get(running) == turn_id:
                parent_id, after = turn_id, i + 1
        fingerprint = digest(running, key.kind.value)
        new = conversation.messages[after:]
        return Located(
            key=key,
            conversation=conversation,
            fingerprint=fingerprint,
            prompt_hash=running,
            parent_id=parent_id,
            new_messages=new,
            form=form,
        )

    def continue_or_fork(self, key: ChainKey, conversation: Conversation, located: Located | None = None) -> Prompt:
        """Return the prompt for a request. Pass `located` if known, to avoid hashing again."""
        at = located or self.locate(key, conversation)
        return self.continued(at) or self._rooted(at)

    def continued(self, at: Located) -> Prompt | None:
        """Return the prompt if the parent can be continued. Renders only the new messages."""
        if at.parent_id is None or not at.continues:
            return None
        parent = self._nodes[at.parent_id]
        tokens = self.renderer.bridge(
            parent.turn,
            _in_call_order(at.new_messages, parent.reply),
            tools=at.conversation.tools,
            has_reasoning=parent.has_reasoning,
        )
        return (
            None
            if tokens is None
            else self._prompt(at, tokens, ForkReason.BRANCHED if parent.children else None, parent)
        )

    def _rooted(self, at: Located) -> Prompt:
        tokens = self.renderer.render(self._as_recorded(at.conversation))
        if not len(tokens):
            raise LawError("empty prompt: the renderer returned no tokens for a conversation")
        return self._prompt(at, tokens, self._why_root(at), None)

    def _prompt(self, at: Located, new_tokens: Int32, fork: ForkReason | None, parent: TurnNode | None) -> Prompt:
        self._prompts += 1
        unmarked_subagent = fork is ForkReason.NEW_CONVERSATION and at.key.kind is SegmentKind.MAIN
        return Prompt(
            turn_id=f"t{self._prompts:05d}",
            kind=SegmentKind.SUBAGENT if unmarked_subagent else self._kind(at, parent),
            tokens=new_tokens if parent is None else np.concatenate([parent.path_tokens(), new_tokens]),
            new_tokens=new_tokens,
            parent_id=None if parent is None else parent.turn.turn_id,
            fork=fork,
            located=at,
        )

    def _why_root(self, at: Located) -> ForkReason | None:
        """Return the reason that a request starts a chain, or None for the first request of its agent."""
        if at.parent_id is None:
            roots = self._roots.get(at.key.agent)
            return why_new_root(roots, at.form, at.key, recognised=self._knows(at.conversation)) if roots else None
        if not at.new_messages:
            return ForkReason.NOTHING_NEW
        return ForkReason.TEMPLATE_REFUSED if at.continues else ForkReason.FOREIGN_ASSISTANT

    def commit(self, prompt: Prompt, generation: Generation, parsed: ParsedReply, *, started_s: float = 0.0) -> Turn:
        """Record a generation. The ids of `parsed.tool_calls` must be the ids sent to the client."""
        if prompt.turn_id in self._nodes:
            raise LawError(f"turn {prompt.turn_id} was committed twice")
        turn = Turn(turn_id=prompt.turn_id, prompt_tokens=prompt.new_tokens, generation=generation, started_s=started_s)
        at = prompt.located
        parent = None if prompt.parent_id is None else self._nodes[prompt.parent_id]
        reply = parsed.as_message()
        node = TurnNode(
            turn=turn,
            kind=prompt.kind,
            parent=parent,
            reply=reply,
            new_messages=at.conversation.messages if parent is None else at.new_messages,
            agent=at.key.agent,
            has_reasoning=(parent is not None and parent.has_reasoning) or parsed.reasoning is not None,
        )
        # computed before the first change, so that a turn is recorded completely or not at all
        names = _names(turn.turn_id, at.prompt_hash, reply)
        node.supersede(n for n in self._nodes.values() if n.parent is parent and n.agent == node.agent)
        self._nodes[turn.turn_id] = node
        if parent is not None:
            parent.children += 1
        else:
            self._roots.setdefault(at.key.agent, []).append(at.form)
        if prompt.fork is not None:
            self.forks[prompt.fork] += 1
        self._by_hash[names.place] = turn.turn_id
        self._by_text.update(dict.fromkeys(names.texts, turn.turn_id))
        self._by_words.update(dict.fromkeys(names.words, turn.turn_id))
        self._by_call.update({call.id: turn.turn_id for call in reply.tool_calls})
        return turn

    def holds(self, turn_id: str) -> bool:
        """Return whether the turn is committed."""
        return turn_id in self._nodes

    def delivered(self, turn_id: str) -> None:
        """Record that the client received the whole reply of this turn."""
        self._nodes[turn_id].delivered = True

    def lose(self, prompt: Prompt, tokens: int, reason: ExclusionReason) -> None:
        """Count sampled tokens that never became a turn."""
        self._lost.append((prompt.turn_id, tokens, reason))

    def export(self) -> tuple[list[Segment], Ledger]:
        """Return the training samples and the balanced ledger. Raises LawError."""
        ledger = Ledger()
        for turn_id, tokens, reason in self._lost:
            ledger.sample(turn_id, tokens)
            ledger.exclude(turn_id, reason, tokens)
        segments = linearize(list(self._nodes.values()), ledger, max_tokens=self.max_segment_tokens)
        ledger.balance()
        if sum(s.trained for s in segments) != ledger.trained:
            raise LawError(
                f"segments train {sum(s.trained for s in segments)} tokens, the ledger says {ledger.trained}"
            )
        return segments, ledger

    def replies(self) -> Mapping[str, Message]:
        """Return the parsed reply of each turn in order of commit."""
        return {turn_id: node.reply for turn_id, node in self._nodes.items()}

    def kinds(self) -> Mapping[str, SegmentKind]:
        """Return the kind of each turn."""
        return {turn_id: node.kind for turn_id, node in self._nodes.items()}

    def _kind(self, at: Located, parent: TurnNode | None) -> SegmentKind:
        """Return the kind of a request. A sub-agent's chain keeps its kind even if the client does not mark it."""
        if parent is not None and parent.kind is SegmentKind.SUBAGENT and at.key.kind is SegmentKind.MAIN:
            return SegmentKind.SUBAGENT
        return at.key.kind

    def _recognise(self, before: bytes, message: Message) -> str | None:
        """Return the turn that an assistant message echoes: by turn id, by a call's id, or by its text and position."""
        if message.turn_id in self._nodes:
            return message.turn_id
        for call in message.tool_calls:
            if call.id in self._by_call:
                return self._by_call[call.id]
        return self._by_text.get(text_key(before, message))

    def _knows(self, conversation: Conversation) -> bool:
        return any(
            m.turn_id in self._nodes or any(c.id in self._by_call for c in m.tool_calls)
            for m in conversation.messages
            if m.role is Role.ASSISTANT
        )

    def _as_recorded(self, conversation: Conversation) -> Conversation:
        """Replace each echo with a known id by the recorded reply, because clients reformat."""
        if not self._nodes:
            return conversation
        messages = tuple(self._recorded(m) for m in conversation.messages)
        return type(conversation)(messages=messages, tools=conversation.tools)

    def _recorded(self, message: Message) -> Message:
        if message.role is not Role.ASSISTANT:
            return message
        for turn_id in (message.turn_id, *(self._by_call.get(c.id) for c in message.tool_calls)):
            if turn_id in self._nodes:
                return self._nodes[turn_id].reply
        return message


@dataclass(frozen=True, slots=True)
class _Names:
    """Keys that find a turn again. See the fields of `SessionGraph`."""

    place: bytes
    texts: tuple[bytes, ...]
    words: tuple[bytes, ...]


def _names(turn_id: str, prompt_hash: bytes, reply: Message) -> _Names:
    """Return a turn's keys. A client may split the reasoning from a reply that it got as raw text."""
    reasoning, rest = told_apart(reply.content)
    spoken = replace(reply, content=rest)
    forms = (reply,) if reasoning is None else (reply, spoken)
    words = forms if rest.strip() else (reply,)  # an empty text would match many turns
    return _Names(
        place=turn_digest(prompt_hash, turn_id),
        texts=tuple(text_key(prompt_hash, form) for form in forms),
        words=tuple(text_key(b"", form) for form in words),
    )


def _in_call_order(messages: Sequence[Message], reply: Message) -> tuple[Message, ...]:
    """Put tool results in the order of their calls (clients send them as they finish) and fill in the tools' names."""
    order = {call.id: i for i, call in enumerate(reply.tool_calls)}
    names = {call.id: call.name for call in reply.tool_calls}
    results = sorted((m for m in messages if m.tool_call_id in order), key=lambda m: order[m.tool_call_id or ""])
    queue = iter(results)
    ordered = (next(queue) if m.tool_call_id in order else m for m in messages)
    return tuple(m if m.tool_name or m.tool_call_id is None else _named(m, names.get(m.tool_call_id)) for m in ordered)


def _named(message: Message, name: str | None) -> Message:
    return Message(role=message.role, content=message.content, tool_call_id=message.tool_call_id, tool_name=name)

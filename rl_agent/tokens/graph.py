"""The turns of one agent run as a tree: which recorded turn a request continues, and the exact prompt for it.

Invariants
- A prompt is its parent's recorded tokens followed by rendered new messages (law 2). Recorded tokens are never rendered again;
  where that is impossible a new root is rendered in full, and the fork is counted by reason.
- What the client echoes only decides which turn is the parent: see `fingerprint`.
- Paths from root to leaf become segments; a turn on several paths trains in the first one only (law 1).
- Cost of a request: hashing its messages, rendering its new ones, one copy of the prompt.

All methods are synchronous; the adapter's session calls them, one at a time.
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
    """Position of a request in the tree. Two requests are the same exactly if their `fingerprint` is equal (law 7)."""

    key: ChainKey
    conversation: Conversation
    fingerprint: bytes
    prompt_hash: bytes
    """The running hash after the last message."""
    parent_id: str | None
    """The deepest recorded turn that the request contains."""
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
    """The tokens to continue, and what the graph must know when the answer comes."""

    turn_id: str
    kind: SegmentKind
    tokens: Int32
    """[T] int32: the whole prompt."""
    new_tokens: Int32
    """[T] int32: its end that is new; all of it for a root."""
    parent_id: str | None
    fork: ForkReason | None
    located: Located


@dataclass(slots=True)
class SessionGraph:
    """See the file's docstring."""

    renderer: Renderer
    max_segment_tokens: int | None = None
    """Segments are cut here; None: never."""
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
        """All turns, in the order of their commits."""
        return tuple(n.turn for n in self._nodes.values())

    def locate(self, key: ChainKey, conversation: Conversation) -> Located:
        """Find the deepest recorded turn in a request. Changes nothing but which echoes were seen."""
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
        """The prompt for a request. Pass `located` where it is known, to save the hashing."""
        at = located or self.locate(key, conversation)
        return self.continued(at) or self._rooted(at)

    def continued(self, at: Located) -> Prompt | None:
        """The prompt, if the parent can be continued: only the new messages are rendered."""
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
            raise LawError("an empty prompt: the renderer gave no token for a whole conversation")
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
        """Return the reason that a request starts a chain; None for the first request of its agent."""
        if at.parent_id is None:
            roots = self._roots.get(at.key.agent)
            return why_new_root(roots, at.form, at.key, recognised=self._knows(at.conversation)) if roots else None
        if not at.new_messages:
            return ForkReason.NOTHING_NEW
        return ForkReason.TEMPLATE_REFUSED if at.continues else ForkReason.FOREIGN_ASSISTANT

    def commit(self, prompt: Prompt, generation: Generation, parsed: ParsedReply, *, started_s: float = 0.0) -> Turn:
        """Record a generation. The ids of `parsed.tool_calls` must be the ones that the client gets."""
        if prompt.turn_id in self._nodes:
            raise LawError(f"turn {prompt.turn_id} is committed twice")
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
        names = _names(
            turn.turn_id, at.prompt_hash, reply
        )  # before the first change: a turn is in the graph whole or not at all
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
        """The client has the whole reply of this turn."""
        self._nodes[turn_id].delivered = True

    def lose(self, prompt: Prompt, tokens: int, reason: ExclusionReason) -> None:
        """Account for sampled tokens that never became a turn."""
        self._lost.append((prompt.turn_id, tokens, reason))

    def export(self) -> tuple[list[Segment], Ledger]:
        """The training samples and the balanced ledger. Raises LawError."""
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
        """Each turn's reply as it was parsed, in the order of the commits."""
        return {turn_id: node.reply for turn_id, node in self._nodes.items()}

    def kinds(self) -> Mapping[str, SegmentKind]:
        """Each turn's kind."""
        return {turn_id: node.kind for turn_id, node in self._nodes.items()}

    def _kind(self, at: Located, parent: TurnNode | None) -> SegmentKind:
        """A request of a chain that was found to be a sub-agent's stays one, though its client does not say so."""
        if parent is not None and parent.kind is SegmentKind.SUBAGENT and at.key.kind is SegmentKind.MAIN:
            return SegmentKind.SUBAGENT
        return at.key.kind

    def _recognise(self, before: bytes, message: Message) -> str | None:
        """The turn that an echoed assistant's message is: by its own id, by a call's id, or by what it says at its place."""
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
        """The conversation with each echo that carries a known id replaced by what the policy said (clients reformat)."""
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
    """Under what a turn is found again; see the fields of `SessionGraph`."""

    place: bytes
    texts: tuple[bytes, ...]
    words: tuple[bytes, ...]


def _names(turn_id: str, prompt_hash: bytes, reply: Message) -> _Names:
    """A reply that the client got as raw text may come back with the reasoning in it told apart."""
    reasoning, rest = told_apart(reply.content)
    spoken = replace(reply, content=rest)
    forms = (reply,) if reasoning is None else (reply, spoken)
    words = forms if rest.strip() else (reply,)  # nothing is said in many places
    return _Names(
        place=turn_digest(prompt_hash, turn_id),
        texts=tuple(text_key(prompt_hash, form) for form in forms),
        words=tuple(text_key(b"", form) for form in words),
    )


def _in_call_order(messages: Sequence[Message], reply: Message) -> tuple[Message, ...]:
    """Tool results in the order of their calls (clients send them as they finish), with the tools' names filled in."""
    order = {call.id: i for i, call in enumerate(reply.tool_calls)}
    names = {call.id: call.name for call in reply.tool_calls}
    results = sorted((m for m in messages if m.tool_call_id in order), key=lambda m: order[m.tool_call_id or ""])
    queue = iter(results)
    ordered = (next(queue) if m.tool_call_id in order else m for m in messages)
    return tuple(m if m.tool_name or m.tool_call_id is None else _named(m, names.get(m.tool_call_id)) for m in ordered)


def _named(message: Message, name: str | None) -> Message:
    return Message(role=message.role, content=message.content, tool_call_id=message.tool_call_id, tool_name=name)

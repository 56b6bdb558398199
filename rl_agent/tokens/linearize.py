"""Conversion of the tree of turns to segments: one linear token sequence per path from a root to a leaf.

Turns that do not count (discarded by the client, never delivered) are removed first, with their reason in the ledger. A
turn on several paths trains in the first path and is context in the others. Tokens beyond `max_tokens` are cut at the
end of the path, because later tokens must keep the context in which they were sampled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rl_agent.tokens.ledger import ExclusionReason
from rl_agent.tokens.messages import Role
from rl_agent.tokens.segment import NOT_SAMPLED, Segment, SegmentKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rl_agent.tokens.ledger import Ledger
    from rl_agent.tokens.messages import Message
    from rl_agent.tokens.turn import Int32, Turn


@dataclass(slots=True, eq=False)
class TurnNode:
    """A turn in the tree, and the fate of its reply."""

    turn: Turn
    kind: SegmentKind
    parent: TurnNode | None
    reply: Message
    new_messages: tuple[Message, ...]
    agent: str
    has_reasoning: bool
    """True if this turn or an earlier turn of the chain has reasoning."""
    children: int = 0
    delivered: bool = False
    acknowledged: bool = False
    """The client echoed the reply in a later request."""
    superseded: bool = False
    """The client sent the same prompt again, perhaps longer, without this reply."""

    def path(self) -> list[TurnNode]:
        """Return the nodes from the root to this node."""
        nodes: list[TurnNode] = []
        node: TurnNode | None = self
        while node is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def path_tokens(self) -> Int32:
        """Return all recorded tokens up to the end of this turn as [T] int32."""
        return np.concatenate([part for n in self.path() for part in (n.turn.prompt_tokens, n.turn.generation.tokens)])

    def supersede(self, siblings: Iterable[TurnNode]) -> None:
        """Mark the earlier siblings whose prompt this turn repeats: the client dropped their replies."""
        if self.kind is SegmentKind.COMPACTION:
            return
        for other in siblings:
            if other.kind is not SegmentKind.COMPACTION and _repeats(self.new_messages, other.new_messages):
                other.superseded = True

    def exclusion(self) -> ExclusionReason | None:
        """Return the reason that this turn is excluded, or None. A reply that was used always counts."""
        if self.children or self.acknowledged:
            return None
        if not self.delivered:
            return ExclusionReason.UNDELIVERED
        return ExclusionReason.SUPERSEDED if self.superseded else None


def linearize(nodes: Sequence[TurnNode], ledger: Ledger, *, max_tokens: int | None = None) -> list[Segment]:
    """Return the segments of all turns that count. Every turn enters the ledger."""
    counting: list[TurnNode] = []
    for node in nodes:
        tokens = len(node.turn.generation.tokens)
        ledger.sample(node.turn.turn_id, tokens)
        reason = node.exclusion()
        if reason is None:
            counting.append(node)
        else:
            ledger.exclude(node.turn.turn_id, reason, tokens)
    inner = {id(n.parent) for n in counting}
    leaves = [n for n in counting if id(n) not in inner]
    leaves.sort(key=lambda n: n.kind is not SegmentKind.MAIN)  # stable sort: shared turns train in the main path
    trained: set[str] = set()
    segments = [_segment(leaf, trained, ledger, max_tokens) for leaf in leaves]
    return [s for s in segments if s.trained]


def _segment(leaf: TurnNode, trained: set[str], ledger: Ledger, max_tokens: int | None) -> Segment:
    path = leaf.path()
    total = sum(len(n.turn.prompt_tokens) + len(n.turn.generation.tokens) for n in path)
    limit = total if max_tokens is None else min(total, max_tokens)
    mask = np.zeros(limit, dtype=np.bool_)
    logprobs = np.zeros(limit, dtype=np.float32)
    versions = np.full(limit, NOT_SAMPLED, dtype=np.int32)
    end = 0
    for node in path:
        generation, turn_id = node.turn.generation, node.turn.turn_id
        start = end + len(node.turn.prompt_tokens)
        end = start + len(generation.tokens)
        fitting = max(0, min(end, limit) - start)
        versions[start:end] = generation.weight_versions()[:fitting]
        if turn_id in trained:
            continue
        trained.add(turn_id)
        mask[start:end] = True
        logprobs[start:end] = generation.logprobs[:fitting]
        ledger.train(turn_id, fitting)
        if fitting < len(generation.tokens):
            ledger.exclude(turn_id, ExclusionReason.SEGMENT_FULL, len(generation.tokens) - fitting)
    return Segment(
        kind=leaf.kind,
        tokens=leaf.path_tokens()[:limit],
        loss_mask=mask,
        rollout_logprobs=logprobs,
        weight_versions=versions,
    )


def _repeats(later: tuple[Message, ...], earlier: tuple[Message, ...]) -> bool:
    """Return whether `later` repeats `earlier` without a reply to it. The last message may be longer in `later`."""
    if len(later) < len(earlier) or not earlier:
        return False
    if len(later) > len(earlier) and later[len(earlier)].role is Role.ASSISTANT:
        return False
    *head, last = earlier
    grown = later[len(head)]
    if grown.role is not last.role or grown.tool_call_id != last.tool_call_id:
        return False
    return grown.content.startswith(last.content.strip()) and tuple(head) == later[: len(head)]

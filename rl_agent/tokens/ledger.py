"""Ledger of one session: every sampled token is trained exactly once or excluded for a named reason (law 1)."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING

from rl_agent.errors import LawError

if TYPE_CHECKING:
    from collections.abc import Mapping


class ExclusionReason(StrEnum):
    """Reason that sampled tokens do not train."""

    CANCELLED = "cancelled"
    """The client disconnected or the session closed before the reply was complete."""
    UNDELIVERED = "undelivered"
    """The reply was complete but never reached the client."""
    SUPERSEDED = "superseded"
    """The client discarded the reply and asked again."""
    UNUSABLE = "unusable"
    """The engine's response broke a law (missing log-probability, no weight version)."""
    SEGMENT_FULL = "segment_full"
    """The tokens are beyond `max_segment_tokens` of their segment."""


class Ledger:
    """Counts tokens per turn. `balance` is called at export; a mismatch is an error."""

    def __init__(self) -> None:
        self._sampled: Counter[str] = Counter()
        self._trained: Counter[str] = Counter()
        self._excluded: dict[str, tuple[ExclusionReason, int]] = {}

    def sample(self, turn_id: str, count: int) -> None:
        """Count sampled tokens of a turn."""
        self._sampled[turn_id] += count

    def train(self, turn_id: str, count: int) -> None:
        """Count tokens of a turn that train in an exported segment."""
        self._trained[turn_id] += count

    def exclude(self, turn_id: str, reason: ExclusionReason, count: int) -> None:
        """Count tokens of a turn that do not train. A turn is excluded at most once."""
        if turn_id in self._excluded:
            raise LawError(f"turn {turn_id} was excluded twice: {self._excluded[turn_id][0]} and {reason}")
        self._excluded[turn_id] = (reason, count)

    @property
    def sampled(self) -> int:
        """Return the number of sampled tokens."""
        return self._sampled.total()

    @property
    def trained(self) -> int:
        """Return the number of tokens that train."""
        return self._trained.total()

    @property
    def excluded(self) -> Mapping[ExclusionReason, int]:
        """Return the number of tokens that do not train, by reason."""
        sums: Counter[ExclusionReason] = Counter()
        for reason, count in self._excluded.values():
            sums[reason] += count
        return dict(sums)

    def balance(self) -> None:
        """Raise LawError unless each turn's tokens are counted exactly once."""
        for turn_id in {*self._sampled, *self._trained, *self._excluded}:
            sampled, trained = self._sampled[turn_id], self._trained[turn_id]
            excluded = self._excluded[turn_id][1] if turn_id in self._excluded else 0
            if sampled != trained + excluded:
                raise LawError(
                    f"ledger: turn {turn_id} sampled {sampled} tokens, but {trained} train and {excluded} are excluded "
                    "(law 1: each exactly once)"
                )

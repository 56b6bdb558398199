"""A circuit breaker: knows an outage of something that many rollouts need, and lets them back in little by little. Without a clock.

It opens after a number of failures in a row, of more than one task: one task whose image breaks every sandbox is no outage. While it is open
nothing starts. After `probe_s` without a failure one rollout may be on its way, after twice as long two, then four, and so on; a
success closes it, a failure begins the wait anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

_RAMP: Final = 10
"""Doublings after which it closes by itself: a thousand rollouts are on their way and none has failed."""


@dataclass(slots=True, kw_only=True)
class Breaker:
    """Times are seconds of any clock that goes forward."""

    after: int
    """Failures in a row that open it."""
    probe_s: float
    _failed: list[int] = field(default_factory=list)
    """Positions of the tasks of the last failures in a row."""
    _since: float | None = None
    """When the outage began."""
    _last: float = 0.0
    """When it was seen last."""
    _past_s: float = 0.0
    """Length of the outages that are over."""

    def failure(self, position: int, now: float) -> None:
        """A rollout of the task at `position` failed for it."""
        self._failed = [*self._failed[-(self.after - 1) :], position] if self.after > 1 else [position]
        self._last = now
        if self._since is None and len(self._failed) >= self.after and len(set(self._failed)) > 1:
            self._since = now

    def success(self, now: float) -> None:
        """A rollout got through."""
        self._failed.clear()
        if self._since is not None:
            self._past_s += now - self._since
            self._since = None

    def limit(self, now: float) -> int | None:
        """How many rollouts may run; None: it does not say."""
        if self._since is None:
            return None
        waited = int((now - self._last) / self.probe_s)
        if waited > _RAMP:
            self.success(now)
            return None
        return 2 ** (waited - 1) if waited else 0

    def open_s(self, now: float) -> float:
        """How long the outage has lasted; 0.0 when there is none."""
        return 0.0 if self._since is None else now - self._since

    def total_s(self, now: float) -> float:
        """All outages so far together."""
        return self._past_s + self.open_s(now)

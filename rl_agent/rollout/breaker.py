"""Circuit breaker: detects an outage of a service that many rollouts need, and admits rollouts again step by step.

It opens after a number of failures in a row of more than one task, since one task whose image breaks every sandbox is
not an outage. While the breaker is open, nothing starts. After `probe_s` without a failure one rollout may run, after
twice as long two, then four, and so on. A success closes the breaker. A failure restarts the wait. The caller passes
the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

_RAMP: Final = 10
"""Number of doublings after which the breaker closes by itself: a thousand rollouts may run and none has failed."""


@dataclass(slots=True, kw_only=True)
class Breaker:
    """Breaker of one service. Times are seconds of any monotonic clock."""

    after: int
    """Number of failures in a row that opens the breaker."""
    probe_s: float
    _failed: list[int] = field(default_factory=list)
    """Task positions of the last failures in a row."""
    _since: float | None = None
    """Start of the outage, or None."""
    _last: float = 0.0
    """Time of the last failure."""
    _past_s: float = 0.0
    """Total length of past outages."""

    def failure(self, position: int, now: float) -> None:
        """Record that the service failed a rollout of the task at `position`."""
        self._failed = [*self._failed[-(self.after - 1) :], position] if self.after > 1 else [position]
        self._last = now
        if self._since is None and len(self._failed) >= self.after and len(set(self._failed)) > 1:
            self._since = now

    def success(self, now: float) -> None:
        """Record a rollout that succeeded. This closes the breaker."""
        self._failed.clear()
        if self._since is not None:
            self._past_s += now - self._since
            self._since = None

    def limit(self, now: float) -> int | None:
        """Return how many rollouts may run, or None without an outage."""
        if self._since is None:
            return None
        waited = int((now - self._last) / self.probe_s)
        if waited > _RAMP:
            self.success(now)
            return None
        return 2 ** (waited - 1) if waited else 0

    def open_s(self, now: float) -> float:
        """Return how long the current outage has lasted, 0.0 without one."""
        return 0.0 if self._since is None else now - self._since

    def total_s(self, now: float) -> float:
        """Return the total length of all outages so far."""
        return self._past_s + self.open_s(now)

"""Policy for failed rollouts: which are retried, which are final, and when the run ends.

- Infrastructure (sandbox, engine, worker, grading): retried `retries` times with growing pauses. During an outage,
  retries do not count.
- The task (setup), the agent: final, since a retry would fail too. If most tasks fail, the run ends.
- Internal errors: final, with a traceback in the log. Too many end the run.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from rl_agent.errors import InfraError, RlAgentError
from rl_agent.graders.base import VerdictStatus
from rl_agent.rollout.breaker import Breaker
from rl_agent.rollout.group import AbortReason, aborted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rl_agent.config.rollout import FailuresConfig
    from rl_agent.rollout.group import EpisodeRequest, Rollout, Slot

log = logging.getLogger(__name__)

LONGEST_PAUSE_S: Final = 60.0
FEWEST_FOR_A_RATE: Final = 20
"""Minimum number of rollouts for computing an error rate."""


class Provider(StrEnum):
    """Services that rollouts need."""

    SANDBOX = "sandbox"
    ENGINE = "engine"
    WORKER = "worker"
    GRADER = "grader"
    AGENT = "agent"


_PROVIDERS: Final = {
    AbortReason.SANDBOX_ERROR: Provider.SANDBOX,
    AbortReason.CAPTURE_ERROR: Provider.SANDBOX,
    AbortReason.ENGINE_ERROR: Provider.ENGINE,
    AbortReason.WORKER_LOST: Provider.WORKER,
    AbortReason.EMPTY_SESSION: Provider.AGENT,
}
_ABNORMAL: Final = (AbortReason.HARNESS_ERROR, AbortReason.BUG, AbortReason.SETUP_ERROR)
"""Failures that count towards `max_error_rate` besides infrastructure. If most setups fail, the tasks are not the
cause."""


@dataclass(slots=True)
class FailurePolicy:
    """State of the policy. `observe` must see every rollout that ends. Times are seconds of a monotonic clock."""

    options: FailuresConfig
    retries: int
    _breakers: dict[Provider, Breaker] = field(default_factory=dict)
    _tries: Counter[Slot] = field(default_factory=Counter)
    """Slot of the first attempt -> failures that count."""
    _last: deque[str | None] = field(default_factory=deque)
    """Status of each broken rollout among the last final ones, None for the others."""
    _details: dict[str, str] = field(default_factory=dict)
    """Status -> its last message."""
    _said: dict[Provider, str] = field(default_factory=dict)
    """Last message of an attempt that the service failed."""
    _counts: Counter[str] = field(default_factory=Counter)
    """Provider -> failed attempts since the last call of `metrics`."""
    _started: int = 0
    """Rollouts started since the last failure."""
    _bugs: int = 0

    def __post_init__(self) -> None:
        options = self.options
        self._breakers = {
            provider: Breaker(after=options.outage_after, probe_s=options.outage_probe_s)
            for provider in Provider
            if provider is not Provider.AGENT
        }
        self._last = deque(maxlen=options.window)

    def observe(self, slot: Slot, rollout: Rollout, now: float) -> float | None:
        """Return the pause in seconds before the next attempt, or None if the rollout is final.

        Raises InfraError if too many rollouts are broken.
        """
        provider = broken_by(rollout)
        if provider is None:
            self._working(rollout, now)
            self._final(slot, rollout)
            return None
        self._started = 0
        self._counts[provider] += 1
        self._said[provider] = rollout.detail[:500]
        if not self._outage(provider, slot, rollout, now):
            self._tries[slot.first] += 1
        if self._tries[slot.first] > self.retries:
            self._final(slot, rollout)
            return None
        return backoff_s(self.options.backoff_s, self._tries[slot.first])

    def _outage(self, provider: Provider, slot: Slot, rollout: Rollout, now: float) -> bool:
        """Return whether the failure belongs to an outage."""
        breaker = self._breakers.get(provider)
        if breaker is None:
            return False
        before = breaker.limit(now) is not None
        breaker.failure(slot.position, now)
        lasts = breaker.limit(now) is not None
        if lasts and not before:
            log.warning(
                "outage: %d rollouts in a row failed for the %s; no rollout starts until it works again. Last error: %s",
                self.options.outage_after,
                provider,
                rollout.detail,
            )
        return lasts

    def limit(self, now: float) -> int | None:
        """Return how many more rollouts may start during an outage, or None without an outage.

        Raises InfraError if the outage lasts too long.
        """
        limits = []
        for provider, breaker in self._breakers.items():
            if breaker.open_s(now) > self.options.outage_limit_s:
                raise InfraError(
                    f"rollout.failures.outage_limit_s={self.options.outage_limit_s:.0f}: the {provider} has not worked for "
                    f"{breaker.open_s(now):.0f} s. Last error: {self._said.get(provider)}. "
                    "Fix the cause, then resume the run; finished rollouts are kept."
                )
            if (limit := breaker.limit(now)) is not None:
                limits.append(max(0, limit - self._started))
        return min(limits, default=None)

    def started(self) -> None:
        """Record that a rollout has started."""
        self._started += 1

    async def contained(self, run: Callable[[EpisodeRequest], Awaitable[Rollout]], request: EpisodeRequest) -> Rollout:
        """Run the request.

        An internal error aborts only this rollout, until there are more than `max_bugs`; then it is raised.
        """
        try:
            return await run(request)
        except RlAgentError:
            raise
        except Exception as error:
            self._bugs += 1
            if self._bugs > self.options.max_bugs:
                raise
            name = request.rollout_id
            log.exception("internal error in rollout %s (%d of at most %d)", name, self._bugs, self.options.max_bugs)
            return aborted(request, AbortReason.BUG, repr(error)[:2000])

    def metrics(self, now: float) -> dict[str, float]:
        """Return the failed attempts since the last call by service, and the outage times of the whole run."""
        failed = {f"failures/{name}": float(count) for name, count in self._counts.items()}
        self._counts.clear()
        outages = {f"failures/{p}_outage_seconds": b.total_s(now) for p, b in self._breakers.items()}
        return (
            failed
            | {name: seconds for name, seconds in outages.items() if seconds}
            | {"failures/bugs": float(self._bugs)}
        )

    def _working(self, rollout: Rollout, now: float) -> None:
        """Close all breakers after a graded rollout, which has used every service."""
        if rollout.reward is None:
            return
        for provider, breaker in self._breakers.items():
            if outage := breaker.open_s(now):
                log.warning("the %s works again after %.0f s", provider, outage)
            breaker.success(now)

    def _final(self, slot: Slot, rollout: Rollout) -> None:
        self._tries.pop(slot.first, None)
        broken = rollout.status if broken_by(rollout) or rollout.abort in _ABNORMAL or _no_setup(rollout) else None
        self._last.append(broken)
        if broken is not None:
            self._details[broken] = rollout.detail or (rollout.verdict.log[-300:] if rollout.verdict else "")
        failed = sum(entry is not None for entry in self._last)
        if len(self._last) >= FEWEST_FOR_A_RATE and failed > self.options.max_error_rate * len(self._last):
            raise InfraError(
                f"rollout.failures.max_error_rate={self.options.max_error_rate:g}: {failed} of the last {len(self._last)} rollouts "
                f"failed before grading. {self._report()} Fix the cause, then resume the run; finished rollouts are kept."
            )

    def _report(self) -> str:
        counts = Counter(entry for entry in self._last if entry is not None)
        told = [f"{name} x{count}: {self._details.get(name, '')[:300]}" for name, count in counts.most_common()]
        return "Errors: " + "; ".join(told) + "." if told else ""


def backoff_s(first_s: float, failures: int) -> float:
    """Return the pause after a number of failures. It doubles from `first_s` up to LONGEST_PAUSE_S."""
    return min(first_s * 2.0 ** max(0, failures - 1), LONGEST_PAUSE_S)


def broken_by(rollout: Rollout) -> Provider | None:
    """Return the service that broke the rollout, or None. Another attempt may succeed."""
    if rollout.abort in _PROVIDERS:
        return _PROVIDERS[rollout.abort]
    verdict = rollout.verdict
    if verdict is not None and verdict.status is VerdictStatus.INFRA_ERROR and not _no_setup(rollout):
        return Provider.GRADER
    return None


def _no_setup(rollout: Rollout) -> bool:
    """Return whether the setup of the task failed before grading."""
    return rollout.verdict is not None and bool(rollout.verdict.metadata.get("setup_failed"))

"""What is done about rollouts that fail: tried again, given up, or waited out; and when there are so many that the run must end.

infrastructure (sandbox, engine, worker, grading)   tried again with growing pauses, `retries` times; while an outage lasts, tries do not count
the task (set-up), the agent                        final: another attempt would say the same; when most tasks are so, the run ends
an own bug                                          final, with its traceback in the log; too many end the run
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
"""Rollouts below which a share of failures says nothing."""


class Provider(StrEnum):
    """What rollouts need of the world."""

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
"""What counts towards `max_error_rate` besides infrastructure: where most tasks cannot be set up, the fault is not theirs."""


@dataclass(slots=True)
class FailurePolicy:
    """Told of every rollout that ends; times are seconds of a clock that goes forward."""

    options: FailuresConfig
    retries: int
    _breakers: dict[Provider, Breaker] = field(default_factory=dict)
    _tries: Counter[Slot] = field(default_factory=Counter)
    """Slot of the first attempt -> failures that count."""
    _last: deque[str | None] = field(default_factory=deque)
    """Of the last final rollouts: how each was broken, or None."""
    _details: dict[str, str] = field(default_factory=dict)
    """Status -> the last message that came with it."""
    _said: dict[Provider, str] = field(default_factory=dict)
    """The last message of an attempt that it broke."""
    _counts: Counter[str] = field(default_factory=Counter)
    """Provider -> attempts that failed, since `metrics` was called."""
    _started: int = 0
    """Rollouts that were started since the last failure."""
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
        """Seconds after which the rollout is to be tried again; None: this is its end.

        Raises InfraError when too many rollouts are broken.
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
        """Whether the failure belongs to an outage."""
        breaker = self._breakers.get(provider)
        if breaker is None:
            return False
        before = breaker.limit(now) is not None
        breaker.failure(slot.position, now)
        lasts = breaker.limit(now) is not None
        if lasts and not before:
            log.warning(
                "outage: %d rollouts in a row failed for the %s; nothing starts until it works again. The last said: %s",
                self.options.outage_after,
                provider,
                rollout.detail,
            )
        return lasts

    def limit(self, now: float) -> int | None:
        """How many more rollouts may start in an outage, whatever still runs from before; None when there is none.

        Raises InfraError for an outage that does not end.
        """
        limits = []
        for provider, breaker in self._breakers.items():
            if breaker.open_s(now) > self.options.outage_limit_s:
                raise InfraError(
                    f"the {provider} has not worked for {breaker.open_s(now):.0f} s (rollout.failures.outage_limit_s is "
                    f"{self.options.outage_limit_s:.0f}). The last said: {self._said.get(provider)}. "
                    "Remedy: put it right, then resume; rollouts that are finished are kept"
                )
            if (limit := breaker.limit(now)) is not None:
                limits.append(max(0, limit - self._started))
        return min(limits, default=None)

    def started(self) -> None:
        """A rollout is on its way."""
        self._started += 1

    async def contained(self, run: Callable[[EpisodeRequest], Awaitable[Rollout]], request: EpisodeRequest) -> Rollout:
        """`run(request)`, where a bug of ours breaks that rollout only: a run of days must not end for it. Many are raised."""
        try:
            return await run(request)
        except RlAgentError:
            raise
        except Exception as error:
            self._bugs += 1
            if self._bugs > self.options.max_bugs:
                raise
            name = request.rollout_id
            log.exception("a bug of ours broke rollout %s (%d of at most %d)", name, self._bugs, self.options.max_bugs)
            return aborted(request, AbortReason.BUG, repr(error)[:2000])

    def metrics(self, now: float) -> dict[str, float]:
        """Attempts that failed since the last call, by what broke them, and the outages of the whole run."""
        failed = {f"failures/{name}": float(count) for name, count in self._counts.items()}
        self._counts.clear()
        outages = {f"failures/{p}_outage_seconds": b.total_s(now) for p, b in self._breakers.items()}
        return (
            failed
            | {name: seconds for name, seconds in outages.items() if seconds}
            | {"failures/bugs": float(self._bugs)}
        )

    def _working(self, rollout: Rollout, now: float) -> None:
        """A rollout that was graded shows that everything works."""
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
                f"{failed} of the last {len(self._last)} rollouts were broken before their work could be graded, more than "
                f"rollout.failures.max_error_rate={self.options.max_error_rate:g} allows. {self._report()} "
                "Remedy: put it right, then resume; rollouts that are finished are kept"
            )

    def _report(self) -> str:
        counts = Counter(entry for entry in self._last if entry is not None)
        told = [f"{name} x{count}: {self._details.get(name, '')[:300]}" for name, count in counts.most_common()]
        return "They were: " + "; ".join(told) + "." if told else ""


def backoff_s(first_s: float, failures: int) -> float:
    """Return the pause after so many failures: it doubles from `first_s` up to LONGEST_PAUSE_S."""
    return min(first_s * 2.0 ** max(0, failures - 1), LONGEST_PAUSE_S)


def broken_by(rollout: Rollout) -> Provider | None:
    """What infrastructure broke the rollout, if that is what happened; another attempt may help."""
    if rollout.abort in _PROVIDERS:
        return _PROVIDERS[rollout.abort]
    verdict = rollout.verdict
    if verdict is not None and verdict.status is VerdictStatus.INFRA_ERROR and not _no_setup(rollout):
        return Provider.GRADER
    return None


def _no_setup(rollout: Rollout) -> bool:
    """Whether the task could not be set up for its grading."""
    return rollout.verdict is not None and bool(rollout.verdict.metadata.get("setup_failed"))

"""How many rollouts an hour the scheduler gets out of a fleet, beside a synchronous loop, and what it costs itself.

    .venv/bin/python -m benchmarks.scheduler --json docs/results/scheduler.json

The scheduler of `rl_agent/rollout/scheduler.py` runs against a simulated clock: agent runs take log-normal times (median 6 min, p95 25 min,
as measured of real agents) and are ended by the default `harness.time_budget_s` after 30 min, their work graded as it is; a training step takes 120 s and a push 10 s; groups of 8, 8 tasks a step.
Synchronous is the same scheduler with staleness 0: sample, train, push, and only then sample again.

What bounds a step, whichever is longest: the trainer (130 s); the fleet (the service time of 64 rollouts over the number of
environments); and the staleness bound: a rollout of step s + k starts after weights number s at the earliest, with k the staleness bound, so k + 1
steps take at least the longest of the step's 64 rollouts and one training step.

Bounds: 2.8 times the synchronous throughput at staleness 2 in every fleet; 0.9 of the bound above; staleness never above its bound; less
than 2 % of the work discarded; less than 50 microseconds an event with 20,000 environments. Exit code 1 if missed.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import math
import random
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_agent.rollout.group import Slot
from rl_agent.rollout.scheduler import Scheduler

MEDIAN_S, P95_S, BUDGET_S = 360.0, 1500.0, 1800.0
SIGMA = math.log(P95_S / MEDIAN_S) / 1.6449
TRAIN_S, PUSH_S = 120.0, 10.0
TASKS, GROUP = 8, 8
STALENESS = (1, 2, 4)
FLEETS = (64, 128, 192, 512, 2048, 20_000)
SPEEDUP_AT_2, OF_BOUND, DISCARDED, EVENT_US = 2.8, 0.9, 0.02, 50.0


def service_time(slot: Slot) -> float:
    """Seconds that a rollout takes: a function of its place alone, so that every schedule has the same work."""
    draw = random.Random(slot.position * 1000 + slot.member)
    return min(BUDGET_S, MEDIAN_S * math.exp(SIGMA * draw.gauss(0.0, 1.0)))


@dataclass(slots=True)
class Result:
    """Of one simulated run."""

    seconds_per_step: float
    staleness_max: int
    discarded_share: float
    busy: float
    """Share of the environments' time."""
    events: int
    """Ends of rollouts, and pushes."""
    scheduler_s: float
    """Wall-clock time spent in the scheduler, admission included."""


@dataclass(slots=True)
class Simulation:
    """One run."""

    plan: Scheduler
    environments: int
    steps: int
    now: float = 0.0
    started: dict[int, list[int]] = field(default_factory=dict)
    """Position -> version at the start of each of its rollouts."""
    events: list[tuple[float, int, Slot | int]] = field(default_factory=list)
    order: itertools.count[int] = field(default_factory=itertools.count)
    seconds: float = 0.0
    count: int = 0

    def run(self) -> Result:
        """From the first rollout to the last step."""
        staleness, done_at, training = 0, [], False
        busy = discarded = useful = 0.0
        while len(done_at) < self.steps:
            self.admit()
            if not training and (step := self.timed(self.plan.take)) is not None:
                for position in step.positions:
                    staleness = max(staleness, step.number - min(self.started.pop(position)))
                discarded += sum(service_time(slot) for slot in step.stop)
                training = True
                self.push(TRAIN_S + PUSH_S, step.number + 1)
                continue
            at, _, what = heapq.heappop(self.events)
            busy += self.plan.running * (at - self.now)
            self.now = at
            self.count += 1
            if isinstance(what, int):
                self.timed(lambda version=what: self.plan.pushed(version))
                training = False
                done_at.append(at)
            else:
                useful += service_time(what)
                self.timed(lambda slot=what: self.plan.finished(slot, rewarded=True))
        warm = self.steps // 10
        return Result(
            seconds_per_step=(done_at[-1] - done_at[warm]) / (self.steps - 1 - warm),
            staleness_max=staleness,
            discarded_share=discarded / (useful + discarded),
            busy=busy / self.now / self.environments,
            events=self.count,
            scheduler_s=self.seconds,
        )

    def admit(self) -> None:
        """Start what may start."""
        for slot in self.timed(self.plan.admit):
            self.started.setdefault(slot.position, []).append(self.plan.version)
            self.push(service_time(slot), slot)

    def push(self, after: float, what: Slot | int) -> None:
        """A rollout ends, or weights arrive, after so many seconds."""
        heapq.heappush(self.events, (self.now + after, next(self.order), what))

    def timed(self, call: Any) -> Any:
        """What the call returns; its wall-clock time is the scheduler's."""
        began = time.perf_counter()
        result = call()
        self.seconds += time.perf_counter() - began
        return result


def simulate(environments: int, staleness: int, steps: int, tasks: int = TASKS) -> Result:
    """A run of so many steps, and a staleness more that are never trained, so that the end is like the middle."""
    plan = Scheduler(
        tasks_per_step=tasks,
        group_size=GROUP,
        max_concurrent=environments,
        max_staleness=staleness,
        last_step=steps + staleness + 1,
        version=0,
    )
    return Simulation(plan=plan, environments=environments, steps=steps).run()


def bound(environments: int, staleness: int, steps: int) -> float:
    """Seconds that a step takes at least."""
    members = [
        [Slot(position=p, member=m) for p in range(s * TASKS, (s + 1) * TASKS) for m in range(GROUP)]
        for s in range(steps)
    ]
    work = [[service_time(slot) for slot in step] for step in members]
    fleet = statistics.mean(map(sum, work)) / environments
    lag = (statistics.mean(map(max, work)) + TRAIN_S + PUSH_S) / (staleness + 1)
    return max(TRAIN_S + PUSH_S, fleet, lag)


def cost(environments: int, steps: int) -> float:
    """Microseconds that the scheduler takes for an event when the whole fleet is in use."""
    result = simulate(environments, 2, steps, tasks=environments // GROUP // 2)
    return result.scheduler_s / result.events * 1e6


def main() -> int:
    """Print the figures; 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    steps: int = options.steps
    table: dict[str, dict[str, Any]] = {}
    for fleet in FLEETS:
        sync = simulate(fleet, 0, steps)
        for staleness in STALENESS:
            ran = simulate(fleet, staleness, steps)
            table.setdefault(str(fleet), {})[str(staleness)] = {
                "speedup": round(sync.seconds_per_step / ran.seconds_per_step, 3),
                "of_bound": round(bound(fleet, staleness, steps) / ran.seconds_per_step, 3),
                "staleness_max": ran.staleness_max,
                "discarded_share": ran.discarded_share,
                "environments_busy": round(ran.busy, 3),
            }
    worst = {str(s): [table[fleet][str(s)] for fleet in table] for s in STALENESS}
    figures = {
        "speedup_vs_sync": {s: min(row["speedup"] for row in rows) for s, rows in worst.items()},
        "staleness_max": {s: max(row["staleness_max"] for row in rows) for s, rows in worst.items()},
        "discarded_share": max(row["discarded_share"] for rows in worst.values() for row in rows),
        "utilisation": min(row["of_bound"] for rows in worst.values() for row in rows),
        "us_per_event": round(cost(FLEETS[-1], steps=6), 2),
        "fleets": table,
    }
    print(json.dumps(figures, indent=2))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    met = (
        figures["speedup_vs_sync"]["2"] >= SPEEDUP_AT_2
        and figures["utilisation"] >= OF_BOUND
        and all(figures["staleness_max"][str(s)] <= s for s in STALENESS)
        and figures["discarded_share"] < DISCARDED
        and figures["us_per_event"] < EVENT_US
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())

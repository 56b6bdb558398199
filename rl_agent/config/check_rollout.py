"""Checks of the scheduling of rollouts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_agent.config.plug_in import Problem, at_least

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.config.rollout import FailuresConfig
    from rl_agent.config.schema import Config


def scheduling_problems(config: Config) -> Iterator[Problem]:
    """Yield the problems of `rollout`."""
    rollout, algo = config.rollout, config.algo
    yield from at_least(
        1,
        rollout__max_concurrent=rollout.max_concurrent,
        rollout__tasks_per_step=rollout.tasks_per_step,
        rollout__max_response_tokens=rollout.max_response_tokens,
    )
    yield from at_least(
        0,
        rollout__extra_tasks=rollout.extra_tasks,
        rollout__extra_members=rollout.extra_members,
        rollout__refill_limit=rollout.refill_limit,
        rollout__retries=rollout.retries,
    )
    if rollout.mode == "one_step_off" and algo.max_staleness < 1:
        what = "one_step_off: samples a step before its weights exist, but algo.max_staleness=0."
        yield Problem("rollout.mode", what, "Set algo.max_staleness=1, or rollout.mode=sync.")
    if rollout.extra_members and algo.advantage.greedy_rollouts:
        what = f"{rollout.extra_members}: the stopped rollouts could include the group's greedy baselines."
        yield Problem("rollout.extra_members", what, "Set it to 0 with an advantage that has greedy rollouts.")
    if rollout.adaptive_concurrency and not 1 <= rollout.min_concurrent <= rollout.max_concurrent:
        what = f"{rollout.min_concurrent} is not between 1 and rollout.max_concurrent={rollout.max_concurrent}."
        yield Problem("rollout.min_concurrent", what, "Set it to a value in this range.")
    yield from _failures(rollout.failures)


def _failures(failures: FailuresConfig) -> Iterator[Problem]:
    if not 0.0 < failures.max_error_rate <= 1.0:
        what = f"{failures.max_error_rate} is not a fraction."
        yield Problem("rollout.failures.max_error_rate", what, "Set it above 0 and at most 1 (1: never end the run).")
    yield from at_least(
        1, rollout__failures__outage_after=failures.outage_after, rollout__failures__window=failures.window
    )
    for name in ("backoff_s", "outage_probe_s", "outage_limit_s"):
        if getattr(failures, name) <= 0:
            yield Problem(f"rollout.failures.{name}", f"{getattr(failures, name)} is not positive.", "Set it above 0.")

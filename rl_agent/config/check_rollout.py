"""Contradictions in how rollouts are scheduled."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.config.rollout import FailuresConfig
    from rl_agent.config.schema import Config


def scheduling_problems(config: Config) -> Iterator[tuple[str, str, str]]:
    """Where, what, remedy."""
    rollout, algo = config.rollout, config.algo
    if rollout.mode == "one_step_off" and algo.max_staleness < 1:
        what = "one_step_off samples a step before its weights are there, but algo.max_staleness=0 forbids it."
        yield "rollout.mode", what, "algo.max_staleness=1, or rollout.mode=sync"
    if rollout.extra_members and algo.advantage.greedy_rollouts:
        what = "the group's greedy baselines could be among those that are stopped."
        yield "rollout.extra_members", what, "0 with an advantage that has greedy rollouts"
    if rollout.adaptive_concurrency and not 1 <= rollout.min_concurrent <= rollout.max_concurrent:
        what = f"{rollout.min_concurrent} is not between 1 and rollout.max_concurrent={rollout.max_concurrent}."
        yield "rollout.min_concurrent", what, "set it in between"
    for name in ("extra_tasks", "extra_members", "refill_limit", "retries"):
        if getattr(rollout, name) < 0:
            yield f"rollout.{name}", f"{getattr(rollout, name)} is negative.", "0 turns it off"
    if getattr(config.job, "eval_tasks", 0) and not config.job.eval_data:
        what = "these tasks would be evaluated and trained."
        yield "job.eval_data", what, "name what the held-out data has other than data, e.g. {path: held_out.jsonl}"
    yield from _failures(rollout.failures)


def _failures(failures: FailuresConfig) -> Iterator[tuple[str, str, str]]:
    if not 0.0 < failures.max_error_rate <= 1.0:
        what = f"{failures.max_error_rate} is no share."
        yield "rollout.failures.max_error_rate", what, "above 0 and at most 1 (1: never ends the run)"
    for name in ("outage_after", "window"):
        if getattr(failures, name) < 1:
            yield f"rollout.failures.{name}", f"{getattr(failures, name)} is less than 1.", "set it to at least 1"
    for name in ("backoff_s", "outage_probe_s", "outage_limit_s"):
        if getattr(failures, name) <= 0:
            yield f"rollout.failures.{name}", f"{getattr(failures, name)} is no duration.", "set it above 0"

"""What the scheduler cannot do is refused before anything starts."""

from __future__ import annotations

import pytest

from rl_agent.config.check import check
from rl_agent.embedded.toy import held_out_tasks as toy_held_out_tasks
from rl_agent.errors import ConfigError
from rl_agent.jobs.driver import max_staleness
from rl_agent.jobs.evaluation import held_out_tasks
from tests.unit.config.test_composition import composed


@pytest.mark.parametrize(
    ("overrides", "place"),
    [
        (["rollout.mode=one_step_off"], "rollout.mode"),
        (["rollout.extra_members=1", "algo/advantage=remax"], "rollout.extra_members"),
        (["rollout.adaptive_concurrency=true", "rollout.min_concurrent=99"], "rollout.min_concurrent"),
        (["rollout.extra_tasks=-1"], "rollout.extra_tasks"),
        (["rollout.refill_limit=-0.5"], "rollout.refill_limit"),
        (["job.eval_tasks=8"], "job.eval_data"),
        (["rollout.failures.max_error_rate=0"], "rollout.failures.max_error_rate"),
        (["rollout.failures.outage_after=0"], "rollout.failures.outage_after"),
        (["rollout.failures.backoff_s=0"], "rollout.failures.backoff_s"),
    ],
)
def test_a_contradiction_is_named(overrides: list[str], place: str) -> None:
    assert [problem.where for problem in check(composed(*overrides))] == [place]


@pytest.mark.parametrize(
    ("mode", "configured", "bound"), [("sync", 3, 0), ("one_step_off", 3, 1), ("async", 3, 3), ("async", 0, 0)]
)
def test_the_mode_bounds_the_staleness(mode: str, configured: int, bound: int) -> None:
    config = composed(f"rollout.mode={mode}", f"algo.max_staleness={configured}")
    assert check(config) == []
    assert max_staleness(config) == bound


def test_held_out_tasks_are_those_of_the_data_as_the_job_changes_it() -> None:
    config = composed("job.eval_tasks=5", "job.eval_data={split: held_out}")
    assert check(config) == []
    known = [task.task_id for task in toy_held_out_tasks(config.data.kinds)[:5]]
    assert [task.task_id for task in held_out_tasks(config, config.job)] == known
    wrong = composed("job.eval_tasks=5", "job.eval_data={splitt: held_out}")
    with pytest.raises(ConfigError, match=r"job\.eval_data: does not fit data.*splitt"):
        held_out_tasks(wrong, wrong.job)

"""Contradictions of sampling jobs are named before anything starts."""

from __future__ import annotations

import pytest

from rl_agent.config.check import check
from tests.unit.config.test_composition import composed


@pytest.mark.parametrize("job", ["rollout", "evaluate"])
def test_the_default_of_a_sampling_job_has_no_contradiction(job: str) -> None:
    assert check(composed(f"job={job}")) == []
    assert check(composed(f"job={job}", "rollout.sampling.temperature=0.6", "rollout.sampling.top_p=0.95")) == []


@pytest.mark.parametrize(
    ("overrides", "place"),
    [
        (["job.k=[1,8]"], "job.k"),
        (["job.k=[]"], "job.k"),
        (["job.k=[0]"], "job.k"),
        (["job.rollouts=0", "job.k=[1]"], "job.rollouts"),
        (["job.greedy=true"], "job.greedy"),
        (["job.confidence=1.5"], "job.confidence"),
        (["rollout.save=failures"], "rollout.save"),
        (["job.tasks=0"], "job.tasks"),
        (["job.checkpoint=/does/not/exist"], "job.checkpoint"),
    ],
)
def test_a_contradiction_is_named(overrides: list[str], place: str) -> None:
    assert place in {problem.where for problem in check(composed("job=evaluate", *overrides))}


def test_groups_of_one_can_be_sampled_but_not_trained_on() -> None:
    assert check(composed("job=rollout", "algo.group_size=1")) == []
    assert [problem.where for problem in check(composed("algo.group_size=1"))] == ["algo.group_size"]


@pytest.mark.parametrize("job", ["rollout", "evaluate", "validate", "plan", "train"])
def test_no_job_takes_a_group_of_no_rollouts(job: str) -> None:
    assert "algo.group_size" in {problem.where for problem in check(composed(f"job={job}", "algo.group_size=0"))}


def test_a_plan_is_checked_like_the_training_that_it_plans() -> None:
    assert [problem.where for problem in check(composed("job=plan", "algo.group_size=1"))] == ["algo.group_size"]
    assert [problem.where for problem in check(composed("job=plan", "job.steps=0"))] == ["job.steps"]


def test_a_greedy_evaluation_of_one_rollout_is_fine() -> None:
    assert check(composed("job=evaluate", "job.greedy=true", "job.rollouts=1", "job.k=[1]")) == []


def test_an_estimator_without_a_gradient_is_refused_in_the_loss() -> None:
    places = {problem.where for problem in check(composed("algo/kl=penalty", "algo.kl.estimator=k1"))}
    assert places == {"algo.kl.estimator"}
    assert check(composed("algo/kl=penalty", "algo.kl.estimator=k1", "algo.kl.importance_weighted=true")) == []
    assert check(composed("algo/kl=penalty_in_reward")) == []


@pytest.mark.parametrize(
    ("override", "place"), [("job.export_every=-1", "job.export_every"), ("job.save_every=0", "job.save_every")]
)
def test_a_training_job_saves_and_exports_at_whole_intervals(override: str, place: str) -> None:
    assert {problem.where for problem in check(composed(override))} == {place}

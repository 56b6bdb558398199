"""Contradictions between what a job is to do and its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_agent.config.job import EvaluateJobConfig, RolloutJobConfig
from rl_agent.config.rollout import SaveRollouts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.config.schema import Config


def job_problems(config: Config) -> Iterator[tuple[str, str, str]]:
    """Place, fault and remedy of each."""
    job: Any = config.job
    if not isinstance(job, RolloutJobConfig | EvaluateJobConfig):
        return
    if config.rollout.save != SaveRollouts.all:
        yield (
            "rollout.save",
            f"this job exists to save rollouts, and resumes from them, but {config.rollout.save.value} are saved.",
            "rollout.save=all",
        )
    if job.tasks is not None and job.tasks < 1:
        yield "job.tasks", f"{job.tasks} is less than 1.", "set it to at least 1, or null for all"
    if job.checkpoint is not None and not Path(job.checkpoint).is_dir():
        yield "job.checkpoint", f"{job.checkpoint} is no folder.", "give a run folder, a checkpoint's or a model's"
    if isinstance(job, EvaluateJobConfig):
        yield from _evaluate(job)


def _evaluate(job: EvaluateJobConfig) -> Iterator[tuple[str, str, str]]:
    if job.rollouts < 1:
        yield "job.rollouts", f"{job.rollouts} is less than 1.", "set it to at least 1"
    if not job.k or min(job.k) < 1 or max(job.k) > job.rollouts:
        yield (
            "job.k",
            f"pass@k of k in {list(job.k)} needs 1 <= k <= job.rollouts={job.rollouts}.",
            f"raise job.rollouts, or lower them: 'job.k=[1,{max(job.rollouts, 1)}]'",
        )
    if job.greedy and job.rollouts > 1:
        yield (
            "job.greedy",
            f"job.rollouts={job.rollouts} greedy rollouts of a task are the same one, up to rounding.",
            "'job.rollouts=1 job.k=[1]', or job.greedy=false",
        )
    if not 0.0 < job.confidence < 1.0:
        yield "job.confidence", f"{job.confidence} is no probability between 0 and 1.", "for example 0.95"

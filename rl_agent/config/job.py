"""Schema of `job/`: what the command does."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


@dataclass(slots=True, kw_only=True)
class TrainJobConfig:
    """Reinforcement learning."""

    _target_: str = "rl_agent.jobs.train.run"
    steps: int = 100
    """Training steps in all, those before a resume included."""
    save_every: int = 10
    """Steps between checkpoints; the last step always has one."""
    keep_checkpoints: int = 2
    export_every: int = 0
    """Steps between exports of the policy as a Hugging Face folder, all of which are kept; 0: at the end only."""
    eval_every: int = 1
    """Steps between measurements of the held-out set (tasks that know their right answer only); 0: never."""
    quarantine_after: int = 2
    """A task is left out for the rest of the run after so many set-ups that failed, or so many pairs of equal patches of which
    one was solved and one was not; the run folder's quarantine.jsonl has it."""


@dataclass(slots=True, kw_only=True)
class SftJobConfig:
    """Supervised fine-tuning: on demonstrations of the toy tasks, or on the solved rollouts of a run."""

    _target_: str = "rl_agent.jobs.sft.run"
    steps: int = 600
    batch_size: int = 16
    """Demonstrations, or rollouts, a step."""
    rollouts: str | None = None
    """A run folder whose recorded rollouts are learned from (rejection sampling); null: demonstrations."""
    min_reward: float = 1.0
    """Recorded rollouts with a smaller reward are left out."""
    right_share: float = 0.4
    """Demonstrations only: share whose fix is right: the rest are plausible mistakes, so that there is something to learn."""
    eval_every: int = 100
    export: str | None = None
    """Where the Hugging Face folder is written; null: `<run folder>/model`."""
    half: bool = True
    """Demonstrations only: write the weights in float16, half the size, for a warm start that is shipped."""


@dataclass(slots=True, kw_only=True)
class ValidateJobConfig:
    """Try every task: its gold patch must pass, and doing nothing must fail."""

    _target_: str = "rl_agent.jobs.validate.run"
    tasks: int | None = None
    """How many; null: each row once, and 50 of a source without end."""
    passes: int = 2
    """How often the gold patch must pass, out of as many tries."""
    concurrent: int = 4
    """Tasks at the same time."""


@dataclass(slots=True, kw_only=True)
class RolloutJobConfig:
    """Sample and save, without training: `algo.group_size` rollouts of each task."""

    _target_: str = "rl_agent.jobs.rollout.run"
    tasks: int | None = None
    """How many; null: each row once, and 64 of a source without end."""
    checkpoint: str | None = None
    """Weights that sample: a run folder, its `exports/step_<n>` or `checkpoints/step_<n>`, or a Hugging Face folder. Null: the model's own."""


class Interval(StrEnum):
    """How the confidence interval of a mean over tasks is made."""

    wilson = "wilson"
    """Wilson's score interval: never of width 0; too wide where a task has several rollouts."""
    bootstrap = "bootstrap"
    """Percentiles of resampled tasks; of width 0 where all tasks agree."""


@dataclass(slots=True, kw_only=True)
class EvaluateJobConfig:
    """Measure a policy: pass@k over the tasks of a split."""

    _target_: str = "rl_agent.jobs.evaluate.run"
    tasks: int | None = None
    """How many; null: each row once, and 64 of a source without end."""
    rollouts: int = 4
    """Of each task. The more, the less pass@k varies."""
    k: list[int] = field(default_factory=lambda: [1, 4])
    """Of pass@k; none larger than `rollouts`."""
    checkpoint: str | None = None
    """Weights that sample: a run folder, its `exports/step_<n>` or `checkpoints/step_<n>`, or a Hugging Face folder. Null: the model's own."""
    greedy: bool = False
    """Sample at temperature 0, whatever `rollout.sampling` says; one rollout a task is enough then."""
    interval: Interval = Interval.wilson
    confidence: float = 0.95
    shown: int = 40
    """Rows of the table of tasks on the console; evaluation.jsonl has all."""


SCHEMAS: Final = {
    "validate": ValidateJobConfig,
    "train": TrainJobConfig,
    "sft": SftJobConfig,
    "rollout": RolloutJobConfig,
    "evaluate": EvaluateJobConfig,
}

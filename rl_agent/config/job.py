"""Schema of `job/`: what the command does."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final


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
    eval_tasks: int = 0
    """Held-out tasks that the agent itself runs, once each, every `eval_tasks_every` steps and after the last; training goes on
    meanwhile, and metrics say which weights were evaluated. 0: none."""
    eval_tasks_every: int = 10
    eval_data: Any = None
    """What the held-out tasks' data has other than `data`: {path: held_out.jsonl}, or {split: held_out} for toy tasks."""
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


@dataclass(slots=True, kw_only=True)
class AssumptionsConfig:
    """What a plan takes for granted about tasks, agents and machines; measure yours with `job=rollout`."""

    agent_median_s: float = 360.0
    """Duration of an agent run: log-normal, with this median and 95th percentile (those of real coding agents)."""
    agent_p95_s: float = 1500.0
    grading_s: float = 90.0
    """Mean duration of grading, its sandbox's boot included."""
    set_up_s: float = 30.0
    """Mean duration of booting and preparing the agent's sandbox."""
    context_tokens: int = 48_000
    """Mean length of a finished conversation."""
    sampled_tokens: int = 12_000
    """Mean number of tokens that the policy samples in one rollout."""
    engine_tokens_per_s: float = 1500.0
    """Sampled by one GPU of the policy servers, many conversations at a time."""
    trainer_tflops: float = 200.0
    """Of one GPU of the trainer, as it really computes: a fifth to two fifths of what it could."""
    push_s: float = 10.0
    """Duration of bringing new weights into the engine."""


@dataclass(slots=True, kw_only=True)
class PlanJobConfig:
    """Say what a configuration needs, before anything is started; no GPU, no network, no weights."""

    _target_: str = "rl_agent.jobs.plan.run"
    steps: int = 100
    """Training steps of the run that is planned, for the sums at the end."""
    nodes: int | None = None
    """Machines; null: the fewest that have room."""
    gpus_per_node: int = 8
    gpu_memory_gb: float = 80.0
    """Of one GPU, in 1e9 bytes."""
    reserve: float = 0.1
    """Share of it that stays free in the trainer: gaps between allocations, buffers of communication, CUDA's own context."""
    engine_overhead_gb: float = 4.0
    """What vLLM takes of its share besides weights and cache."""
    require_fit: bool = True
    """End with an error where memory does not suffice; false: only say so."""
    assume: AssumptionsConfig = field(default_factory=AssumptionsConfig)


SCHEMAS: Final = {
    "plan": PlanJobConfig,
    "validate": ValidateJobConfig,
    "train": TrainJobConfig,
    "sft": SftJobConfig,
    "rollout": RolloutJobConfig,
    "evaluate": EvaluateJobConfig,
}

"""Configs of the jobs. They are in a module without Ray, so that composing a configuration does not import it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from rl_agent.config.job import JobConfig
from rl_agent.config.plug_in import Problem, at_least, existing
from rl_agent.config.rollout import SaveRollouts
from rl_agent.jobs.pass_at_k import Interval
from rl_agent.plan.rates import Assumptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.config.schema import Config
    from rl_agent.run_folder import RunFolder


@dataclass(kw_only=True)
class TrainConfig(JobConfig):
    """Reinforcement learning."""

    steps: int = 100
    """Total number of training steps, including those before a resume."""
    save_every: int = 10
    """Steps between checkpoints. The last step always has one."""
    keep_checkpoints: int = 2
    """Number of newest checkpoints that are kept."""
    export_every: int = 0
    """Steps between exports of the policy as a Hugging Face folder, all of which are kept; 0: only at the end."""
    eval_every: int = 1
    """Steps between measurements of `eval/p_right` on the held-out set (only tasks with known answers); 0: never."""
    eval_tasks: int = 0
    """Number of held-out tasks that the agent runs, once each, every `eval_tasks_every` steps and after the last.
    Training continues meanwhile; `eval/weight_version` is the version of the evaluated weights. 0: none."""
    eval_tasks_every: int = 10
    """Steps between evaluations with `eval_tasks`."""
    eval_data: Any = None
    """Fields of `data` that differ for the held-out tasks, for example {path: held_out.jsonl}, or {split: held_out} for
    toy tasks."""
    quarantine_after: int = 2
    """Number of failed setups, or of pairs of equal patches with different verdicts, after which a task is excluded
    from the rest of the run and recorded in quarantine.jsonl."""

    trains: ClassVar[bool] = True
    samples_to_train: ClassVar[bool] = True

    @override
    def run(self, config: Config, folder: RunFolder) -> None:
        from rl_agent.jobs.train import run  # noqa: PLC0415 (Ray is not needed to compose)

        run(config, self, folder)

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        yield from at_least(
            1, job__steps=self.steps, job__save_every=self.save_every, job__keep_checkpoints=self.keep_checkpoints
        )
        yield from at_least(0, job__export_every=self.export_every)
        if self.eval_tasks and not self.eval_data:
            yield Problem(
                "job.eval_data",
                "null, so the evaluated tasks would also be used for training.",
                "Set the fields in which the held-out data differs from data, for example {path: held_out.jsonl}.",
            )


@dataclass(kw_only=True)
class SftConfig(JobConfig):
    """Supervised fine-tuning: on demonstrations, or on the solved rollouts of a run."""

    steps: int = 600
    """Number of training steps."""
    batch_size: int = 16
    """Demonstrations, or rollouts, per step."""
    rollouts: str | None = None
    """Run folder whose recorded rollouts are trained on (rejection sampling); null: demonstrations."""
    min_reward: float = 1.0
    """Minimum reward of a recorded rollout."""
    right_share: float = 0.4
    """Demonstrations only: fraction of right ones. The others are plausible mistakes, so reinforcement learning can
    improve on them."""
    eval_every: int = 100
    """Steps between measurements of the held-out set."""
    export: str | None = None
    """Path of the exported Hugging Face folder; null: `<run folder>/model`."""
    half: bool = True
    """Demonstrations only: write the weights in float16, for a small warm start."""

    trains: ClassVar[bool] = True

    @override
    def run(self, config: Config, folder: RunFolder) -> None:
        from rl_agent.jobs.sft import run  # noqa: PLC0415 (Ray is not needed to compose)

        run(config, self, folder)

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        yield from at_least(1, job__steps=self.steps, job__batch_size=self.batch_size, job__eval_every=self.eval_every)
        if self.rollouts is None and config.data.build_demonstrator() is None:
            yield Problem(
                "job.rollouts",
                "null, but the tasks have no demonstrations.",
                "Set it to a run folder, or choose model=tiny data=toy.",
            )


@dataclass(kw_only=True)
class SamplingJobConfig(JobConfig, base=True):
    """Options of jobs that sample rollouts and save them."""

    tasks: int | None = None
    """Number of tasks; null: every row once, or 64 tasks of an endless source."""
    checkpoint: str | None = None
    """Weights to sample with: a run folder, its `exports/step_<n>` or `checkpoints/step_<n>`, or a Hugging Face folder.
    Null: the model's own."""

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        if config.rollout.save != SaveRollouts.all:
            yield Problem(
                "rollout.save",
                f"this job saves rollouts and resumes from them, but rollout.save={config.rollout.save.value}.",
                "Set rollout.save=all.",
            )
        yield from at_least(1, job__tasks=self.tasks)
        yield from existing(job__checkpoint=self.checkpoint)


@dataclass(kw_only=True)
class RolloutJobConfig(SamplingJobConfig):
    """Sample and save, without training: `algo.group_size` rollouts of each task."""

    @override
    def run(self, config: Config, folder: RunFolder) -> None:
        from rl_agent.jobs.rollout import run  # noqa: PLC0415 (Ray is not needed to compose)

        run(config, self, folder)


@dataclass(kw_only=True)
class EvaluateConfig(SamplingJobConfig):
    """Measure a policy by pass@k over tasks."""

    rollouts: int = 4
    """Rollouts per task. More rollouts make pass@k less noisy."""
    k: list[int] = field(default_factory=lambda: [1, 4])
    """Values of k in pass@k; at most `rollouts`."""
    greedy: bool = False
    """Sample at temperature 0, regardless of `rollout.sampling`. One rollout per task is enough then."""
    interval: Interval = Interval.wilson
    """Method of the confidence interval."""
    confidence: float = 0.95
    """Confidence level of the interval."""
    shown: int = 40
    """Number of tasks shown on the console. evaluation.jsonl has all."""

    @override
    def run(self, config: Config, folder: RunFolder) -> None:
        from rl_agent.jobs.evaluate import run  # noqa: PLC0415 (Ray is not needed to compose)

        run(config, self, folder)

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        yield from super().problems(config)
        yield from at_least(1, job__rollouts=self.rollouts)
        if not self.k or min(self.k) < 1 or max(self.k) > self.rollouts:
            yield Problem(
                "job.k",
                f"{list(self.k)}: pass@k needs 1 <= k <= job.rollouts={self.rollouts}.",
                f"Raise job.rollouts, or lower k: 'job.k=[1,{max(self.rollouts, 1)}]'.",
            )
        if self.greedy and self.rollouts > 1:
            yield Problem(
                "job.greedy",
                f"the job.rollouts={self.rollouts} greedy rollouts of a task are all the same, up to rounding.",
                "Set 'job.rollouts=1 job.k=[1]', or job.greedy=false.",
            )
        if not 0.0 < self.confidence < 1.0:
            yield Problem("job.confidence", f"{self.confidence} is not between 0 and 1.", "Set for example 0.95.")


@dataclass(kw_only=True)
class ValidateConfig(JobConfig):
    """Try every task: its gold patch must pass, and doing nothing must fail."""

    tasks: int | None = None
    """Number of tasks; null: every row once, or 50 tasks of an endless source."""
    passes: int = 2
    """Number of runs of the gold patch, all of which must pass."""
    concurrent: int = 4
    """Number of tasks that are validated at a time."""

    @override
    def run(self, config: Config, folder: RunFolder) -> None:
        from rl_agent.jobs.validate import run  # noqa: PLC0415 (Ray is not needed to compose)

        run(config, self, folder)

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        yield from at_least(1, job__tasks=self.tasks, job__passes=self.passes, job__concurrent=self.concurrent)


@dataclass(kw_only=True)
class PlanConfig(JobConfig):
    """Compute what a configuration needs, without GPU, network or weights."""

    steps: int = 100
    """Training steps of the planned run, for the totals."""
    nodes: int | None = None
    """Number of machines; null: the fewest that suffice."""
    gpus_per_node: int = 8
    """GPUs per machine."""
    gpu_memory_gb: float = 80.0
    """Memory of one GPU, in 1e9 bytes."""
    reserve: float = 0.1
    """Fraction of it that stays free in the trainer for fragmentation, communication buffers and the CUDA context."""
    engine_overhead_gb: float = 4.0
    """Memory of vLLM besides weights and cache, in 1e9 bytes."""
    require_fit: bool = True
    """Fail if memory does not suffice; false: only report it."""
    assume: Assumptions = field(default_factory=Assumptions)

    trains: ClassVar[bool] = True

    @override
    def run(self, config: Config, folder: RunFolder) -> None:
        from rl_agent.jobs.plan import run  # noqa: PLC0415 (Ray is not needed to compose)

        run(config, self, folder)

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        yield from at_least(1, job__steps=self.steps)

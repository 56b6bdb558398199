"""Configs of the jobs. They stand apart from the jobs, which import Ray: composing a configuration does not."""

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
    """Fields of `data` that differ for the held-out tasks: {path: held_out.jsonl}, or {split: held_out} for toy tasks."""
    quarantine_after: int = 2
    """A task is left out for the rest of the run after so many set-ups that failed, or so many pairs of equal patches of which
    one was solved and one was not; the run folder's quarantine.jsonl has it."""

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
                "the evaluated tasks would also be trained on.",
                "Name how the held-out data differs from data, for example {path: held_out.jsonl}.",
            )


@dataclass(kw_only=True)
class SftConfig(JobConfig):
    """Supervised fine-tuning: on demonstrations, or on the solved rollouts of a run."""

    steps: int = 600
    batch_size: int = 16
    """Demonstrations, or rollouts, a step."""
    rollouts: str | None = None
    """A run folder whose recorded rollouts are learned from (rejection sampling); null: demonstrations."""
    min_reward: float = 1.0
    """Recorded rollouts with a smaller reward are left out."""
    right_share: float = 0.4
    """Demonstrations only: share of right ones. The others are plausible mistakes, so that there is something left to learn."""
    eval_every: int = 100
    export: str | None = None
    """Path of the exported Hugging Face folder; null: `<run folder>/model`."""
    half: bool = True
    """Demonstrations only: write the weights in float16, half the size, for a warm start that is shipped."""

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
                "nothing to learn from: these tasks have no demonstrations.",
                "Set it to a run folder, or choose model=tiny data=toy.",
            )


@dataclass(kw_only=True)
class SamplingJobConfig(JobConfig, base=True):
    """Options of jobs that sample rollouts and save them."""

    tasks: int | None = None
    """Number of tasks; null: every row once, or 64 tasks of an endless source."""
    checkpoint: str | None = None
    """Weights to sample with: a run folder, its `exports/step_<n>` or `checkpoints/step_<n>`, or a Hugging Face folder. Null: the
    model's own."""

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
    """Measure a policy: pass@k over the tasks of a split."""

    rollouts: int = 4
    """Rollouts per task. More rollouts make pass@k less noisy."""
    k: list[int] = field(default_factory=lambda: [1, 4])
    """Values of k in pass@k; at most `rollouts`."""
    greedy: bool = False
    """Sample at temperature 0, whatever `rollout.sampling` says; one rollout a task is enough then."""
    interval: Interval = Interval.wilson
    confidence: float = 0.95
    shown: int = 40
    """Rows of the table of tasks on the console; evaluation.jsonl has all."""

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
                f"pass@k of k in {list(self.k)} needs 1 <= k <= job.rollouts={self.rollouts}.",
                f"Raise job.rollouts, or lower k: 'job.k=[1,{max(self.rollouts, 1)}]'.",
            )
        if self.greedy and self.rollouts > 1:
            yield Problem(
                "job.greedy",
                f"job.rollouts={self.rollouts} greedy rollouts of a task are all the same, up to rounding.",
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
    """Tasks at the same time."""

    @override
    def run(self, config: Config, folder: RunFolder) -> None:
        from rl_agent.jobs.validate import run  # noqa: PLC0415 (Ray is not needed to compose)

        run(config, self, folder)

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        yield from at_least(1, job__tasks=self.tasks, job__passes=self.passes, job__concurrent=self.concurrent)


@dataclass(kw_only=True)
class PlanConfig(JobConfig):
    """Say what a configuration needs, before anything is started; no GPU, no network, no weights."""

    steps: int = 100
    """Training steps of the run that is planned, for the sums at the end."""
    nodes: int | None = None
    """Machines; null: the fewest that have room."""
    gpus_per_node: int = 8
    gpu_memory_gb: float = 80.0
    """Memory of one GPU, in 1e9 bytes."""
    reserve: float = 0.1
    """Share of it that stays free in the trainer: gaps between allocations, buffers of communication, CUDA's own context."""
    engine_overhead_gb: float = 4.0
    """Memory that vLLM uses besides weights and cache."""
    require_fit: bool = True
    """End with an error where memory does not suffice; false: only say so."""
    assume: Assumptions = field(default_factory=Assumptions)

    trains: ClassVar[bool] = True

    @override
    def run(self, config: Config, folder: RunFolder) -> None:
        from rl_agent.jobs.plan import run  # noqa: PLC0415 (Ray is not needed to compose)

        run(config, self, folder)

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        yield from at_least(1, job__steps=self.steps)

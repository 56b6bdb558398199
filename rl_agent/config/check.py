"""Contradictions in a loaded configuration, all of them at once, before anything starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from rl_agent.config.check_cluster import cluster_problems
from rl_agent.config.check_job import job_problems
from rl_agent.config.check_rollout import scheduling_problems
from rl_agent.config.check_sandbox import sandbox_problems
from rl_agent.config.job import EvaluateJobConfig, RolloutJobConfig, ValidateJobConfig
from rl_agent.config.node import get
from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.config.schema import Config


@dataclass(frozen=True, slots=True)
class Problem:
    """One contradiction."""

    where: str
    what: str
    remedy: str

    @override
    def __str__(self) -> str:
        return f"{self.where}: {self.what} Remedy: {self.remedy}"


def check(config: Config) -> list[Problem]:
    """Everything that cannot work, or would not do what it says."""
    return [
        *_model(config),
        *_harness(config),
        *_rollout(config),
        *_numbers(config),
        *_files(config),
        *_sandbox(config),
        *_algo(config),
        *_job(config),
        *_cluster(config),
    ]


def require_valid(config: Config) -> None:
    """Raise ConfigError with every problem."""
    problems = check(config)
    if problems:
        raise ConfigError("\n".join(str(problem) for problem in problems))


def _model(config: Config) -> Iterator[Problem]:
    name = get(config.model, "name")
    if config.tuned_for is not None and config.tuned_for != name:
        yield Problem(
            "experiment",
            f"its values are for model={config.tuned_for}, but the model is {name}.",
            "experiment=cpu_smollm for SmolLM2, or experiment=none for values of your own",
        )

    named = [key for key in ("tool_parser", "reasoning_parser") if get(config.model, key) is not None]
    renderer = get(config.model, "renderer")
    if named and renderer not in {"auto", "template"}:
        yield Problem(
            f"model.{named[0]}",
            f"model.renderer={renderer} reads replies itself.",
            "model.renderer=template, or leave the parsers null",
        )


def _harness(config: Config) -> Iterator[Problem]:
    dialect = get(config.adapter, "dialect")
    harness = str(get(config.harness, "_target_") or "")
    if get(config.harness, "investigator") and (harness.endswith(".Codex") or get(config.harness, "bare")):
        yield Problem(
            "harness.investigator",
            "Codex and Claude Code's --bare have no read-only sub-agent.",
            "harness=claude_code harness.bare=false",
        )
    spoken = _DIALECTS.get(harness)
    if dialect not in (None, "auto") and spoken is not None and dialect != spoken:
        yield Problem("adapter.dialect", f"the harness speaks {spoken}, not {dialect}.", "adapter=auto")
    port, workers = get(config.adapter, "port"), config.cluster.rollout_workers
    if port and workers > 1:
        yield Problem(
            "adapter.port",
            f"each of cluster.rollout_workers={workers} has an adapter, and only one can have port {port}.",
            "adapter.port=0",
        )


_DIALECTS = {
    "rl_agent.harnesses.claude_code.ClaudeCode": "rl_agent.adapters.anthropic_messages.AnthropicMessages",
    "rl_agent.harnesses.codex.Codex": "rl_agent.adapters.openai_responses.OpenAIResponses",
}
"""What our own harnesses speak; a test compares it with the classes."""


def _rollout(config: Config) -> Iterator[Problem]:
    rollout = config.rollout
    if rollout.max_response_tokens > rollout.max_context_tokens:
        yield Problem(
            "rollout.max_response_tokens",
            f"{rollout.max_response_tokens} is more than rollout.max_context_tokens={rollout.max_context_tokens}.",
            "lower it",
        )
    length = get(config.engine, "max_model_len")
    if length is not None and length < rollout.max_context_tokens:
        yield Problem(
            "engine.max_model_len",
            f"{length} is less than rollout.max_context_tokens={rollout.max_context_tokens}.",
            "raise it, or leave it null",
        )
    sampling = rollout.sampling
    plain = (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (1.0, 1.0, -1, 0.0)
    if not plain and get(config.job, "_target_") == "rl_agent.jobs.train.run":
        yield Problem(
            "rollout.sampling",
            "training needs the log-probabilities of the distribution that was sampled, which the engine gives at temperature 1 "
            "without top-p, top-k and min-p only.",
            "temperature=1.0, top_p=1.0, top_k=-1, min_p=0.0 (any values with job=evaluate)",
        )
    budget, guard = get(config.harness, "time_budget_s"), rollout.guard_s
    if guard is not None and budget is not None and guard <= budget:
        yield Problem(
            "rollout.guard_s", f"{guard} s end before harness.time_budget_s={budget} s.", "raise it, or leave it null"
        )
    yield from (Problem(*parts) for parts in scheduling_problems(config))


def _numbers(config: Config) -> Iterator[Problem]:
    at_least_one = {
        "rollout.max_concurrent": config.rollout.max_concurrent,
        "rollout.tasks_per_step": config.rollout.tasks_per_step,
        "rollout.max_response_tokens": config.rollout.max_response_tokens,
        "algo.group_size": get(config.algo, "group_size"),
        "algo.epochs": get(config.algo, "epochs"),
        "job.steps": get(config.job, "steps"),
        "job.save_every": get(config.job, "save_every"),
        "job.keep_checkpoints": get(config.job, "keep_checkpoints"),
        "cluster.rollout_workers": config.cluster.rollout_workers,
    }
    for where, value in at_least_one.items():
        if value is not None and value < 1:
            yield Problem(where, f"{value} is less than 1.", "set it to at least 1")
    export = get(config.job, "export_every")
    if export is not None and export < 0:
        yield Problem("job.export_every", f"{export} is negative.", "0 for the last step alone, n for every n-th")
    staleness = get(config.algo, "max_staleness")
    if staleness is not None and staleness < 0:
        yield Problem(
            "algo.max_staleness", f"{staleness} is negative.", "0 for on-policy, 1 to overlap sampling and training"
        )


def _files(config: Config) -> Iterator[Problem]:
    for where, path in {"data.path": get(config.data, "path"), "model.path": get(config.model, "path")}.items():
        if path is not None and not Path(path).exists():
            yield Problem(where, f"{path} does not exist.", "give the path of an existing one")


def _algo(config: Config) -> Iterator[Problem]:
    """Only where something is trained: rollouts may be sampled in groups of one."""
    if isinstance(config.job, RolloutJobConfig | EvaluateJobConfig | ValidateJobConfig):
        return
    yield from (Problem(found.where, found.what, found.fix) for found in config.algo.problems(config))


def _job(config: Config) -> Iterator[Problem]:
    yield from (Problem(*parts) for parts in job_problems(config))


def _sandbox(config: Config) -> Iterator[Problem]:
    yield from (Problem(*parts) for parts in sandbox_problems(config))


def _cluster(config: Config) -> Iterator[Problem]:
    yield from (Problem(*parts) for parts in cluster_problems(config))

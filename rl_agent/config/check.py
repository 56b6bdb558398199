"""Checks of a loaded configuration before anything starts. All problems are reported at once.

This module checks for contradictions between groups. `problems()` of a plug-in's config checks the plug-in.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from rl_agent.config.check_cluster import cluster_problems
from rl_agent.config.check_rollout import scheduling_problems
from rl_agent.config.plug_in import Problem, TargetConfig
from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.config.schema import Config


def check(config: Config) -> list[Problem]:
    """Return all problems of a configuration."""
    groups = (getattr(config, field.name) for field in fields(config))
    return [
        *_model(config),
        *_adapter(config),
        *_rollout(config),
        *scheduling_problems(config),
        *cluster_problems(config),
        *(problem for group in groups if isinstance(group, TargetConfig) for problem in group.problems(config)),
    ]


def require_valid(config: Config) -> None:
    """Raise ConfigError with every problem."""
    problems = check(config)
    if problems:
        raise ConfigError("\n".join(str(problem) for problem in problems))


def _model(config: Config) -> Iterator[Problem]:
    name = config.model.name
    if config.tuned_for is not None and config.tuned_for != name:
        yield Problem(
            "experiment",
            f"its values are for model={config.tuned_for}, but the model is {name}.",
            "Choose experiment=cpu_smollm for SmolLM2, or experiment=none.",
        )


def _adapter(config: Config) -> Iterator[Problem]:
    dialect, spoken = config.adapter.dialect, config.harness.dialect
    if dialect not in ("auto", spoken):
        yield Problem("adapter.dialect", f"the harness speaks {spoken}, not {dialect}.", "Set adapter=auto.")
    port, workers = config.adapter.port, config.cluster.rollout_workers
    if port and workers > 1:
        yield Problem(
            "adapter.port",
            f"each of cluster.rollout_workers={workers} has an adapter, and only one can have port {port}.",
            "Set adapter.port=0.",
        )


def _rollout(config: Config) -> Iterator[Problem]:
    rollout = config.rollout
    if rollout.max_response_tokens > rollout.max_context_tokens:
        yield Problem(
            "rollout.max_response_tokens",
            f"{rollout.max_response_tokens} is more than rollout.max_context_tokens={rollout.max_context_tokens}.",
            "Lower it.",
        )
    length = config.engine.max_model_len
    if length is not None and length < rollout.max_context_tokens:
        yield Problem(
            "engine.max_model_len",
            f"{length} is less than rollout.max_context_tokens={rollout.max_context_tokens}.",
            "Raise it, or leave it null.",
        )
    sampling = rollout.sampling
    plain = (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (1.0, 1.0, -1, 0.0)
    if not plain and config.job.samples_to_train:
        yield Problem(
            "rollout.sampling",
            "training needs the log-probabilities of the sampled distribution, which the engine gives only at temperature 1 "
            "without top-p, top-k and min-p.",
            "Set temperature=1.0, top_p=1.0, top_k=-1, min_p=0.0 (job=evaluate takes any values).",
        )
    budget, guard = config.harness.time_budget_s, rollout.guard_s
    if guard is not None and guard <= budget:
        yield Problem(
            "rollout.guard_s",
            f"{guard} s is not more than harness.time_budget_s={budget} s.",
            "Raise it, or leave it null.",
        )

"""Config of rollouts: number and length of agent runs, sampling, and failures."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class SaveRollouts(StrEnum):
    """Rollouts that are written to the run folder."""

    all = "all"
    failures = "failures"
    """Only rollouts that are not solved."""
    none = "none"


@dataclass(kw_only=True)
class SamplingConfig:
    """Sampling parameters of the policy. The agent CLI cannot change them (law 3)."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    """Number of most likely tokens to sample from; -1: all."""
    min_p: float = 0.0
    stop_token_ids: list[int] = field(default_factory=list)
    """Stop tokens besides the model's own."""


Mode = StrEnum("Mode", ["sync", "one_step_off", "async"])
"""Overlap of sampling and training; see `RolloutConfig.mode`. (Created by a call because `async` is a keyword.)"""


@dataclass(kw_only=True)
class FailuresConfig:
    """Handling of rollouts that infrastructure breaks."""

    backoff_s: float = 2.0
    """Pause before the first retry of a rollout. It doubles for each further retry, up to a minute."""
    outage_after: int = 4
    """Number of failures in a row, of more than one task, that count as an outage of the sandboxes, the engine, the
    workers or the grader. During an outage nothing starts, and retries do not count."""
    outage_probe_s: float = 15.0
    """Time without a failure after which one rollout starts as a probe; then two, four, and so on."""
    outage_limit_s: float = 3600.0
    """Maximum length of an outage. A longer one ends the run."""
    max_error_rate: float = 0.5
    """Maximum fraction of recent rollouts that fail before grading (infrastructure, setup, internal errors). More end
    the run."""
    window: int = 100
    """Number of recent rollouts for `max_error_rate`."""
    max_bugs: int = 8
    """Maximum number of rollouts with an internal error. One more ends the run."""


@dataclass(kw_only=True)
class RolloutConfig:
    """Options of agent runs."""

    mode: Mode = Mode["async"]
    """sync: sample, train, push, and only then sample again. one_step_off: sample the next step while this one trains.
    async: sample as far ahead as `algo.max_staleness` allows."""
    max_concurrent: int = 16
    """Maximum number of concurrent episodes over all workers."""
    adaptive_concurrency: bool = False
    """Adapt the number of concurrent episodes, from `min_concurrent` to `max_concurrent`, to the engine's queue and KV
    cache."""
    min_concurrent: int = 4
    """Minimum number of concurrent episodes with `adaptive_concurrency`."""
    extra_tasks: int = 0
    """Number of tasks that a step starts beyond `tasks_per_step`. Once enough groups are complete, the others are
    stopped."""
    extra_members: int = 0
    """Number of rollouts that a group starts beyond `algo.group_size`. Once enough have a reward, the others are
    stopped."""
    refill_limit: float = 1.0
    """Maximum number of tasks per step that replace groups dropped by `algo.shaping.drop_zero_variance`, as a multiple
    of `tasks_per_step`; 0: no replacement."""
    tasks_per_step: int = 8
    """Tasks per training step. Each runs `algo.group_size` times."""
    max_context_tokens: int = 96_000
    """Maximum length of a conversation, including prompt and reply."""
    max_response_tokens: int = 32_768
    """Maximum length of a generation. It is reduced to the remaining context."""
    max_turns: int | None = None
    """Maximum number of generations per agent run; null: no limit."""
    guard_s: float | None = None
    """Time limit of a whole rollout; null: agent + all runs of grading + 180 s."""
    retries: int = 2
    """Maximum retries of a rollout after infrastructure failures."""
    workspace_timeout_s: float = 600.0
    """Time limit of each of: repository setup, all pre_commands together, diff capture."""
    warm_sandboxes: int = 0
    """Number of booted sandboxes that each worker keeps ready, of recently used images. Use it if boots take
    seconds."""
    save: SaveRollouts = SaveRollouts.all
    """Rollouts that are written to the run folder."""
    failures: FailuresConfig = field(default_factory=FailuresConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)

"""Schema of `rollout/`: how many agent runs, how long, and how tokens are drawn."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class SaveRollouts(StrEnum):
    """Which rollouts are written to the run folder."""

    all = "all"
    failures = "failures"
    """Those that were not solved."""
    none = "none"


@dataclass(kw_only=True)
class SamplingConfig:
    """Sampling parameters of the policy. The agent CLI cannot change them (law 3)."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    """-1: off."""
    min_p: float = 0.0
    stop_token_ids: list[int] = field(default_factory=list)
    """Besides the model's own."""


Mode = StrEnum("Mode", ["sync", "one_step_off", "async"])
"""Overlap of sampling and training; see `RolloutConfig.mode`. (Created by a call because `async` is a keyword.)"""


@dataclass(kw_only=True)
class FailuresConfig:
    """Handling of rollouts that infrastructure breaks."""

    backoff_s: float = 2.0
    """Pause before a rollout is tried again; twice as long before each further attempt, a minute at most."""
    outage_after: int = 4
    """Failures in a row, of more than one task, that count as an outage of the sandboxes, the engine, the workers or the grading: nothing
    starts until it is over, and tries do not count."""
    outage_probe_s: float = 15.0
    """Time without a failure after which one rollout tries whether the outage is over; then two, four, and so on."""
    outage_limit_s: float = 3600.0
    """An outage that lasts longer ends the run."""
    max_error_rate: float = 0.5
    """Share of the last rollouts that may be broken before they are graded: infrastructure, set-up, own bugs; more end the run."""
    window: int = 100
    """Number of recent rollouts over which the share is computed."""
    max_bugs: int = 8
    """Rollouts that a bug of ours may break before it ends the run."""


@dataclass(kw_only=True)
class RolloutConfig:
    """Agent runs."""

    mode: Mode = Mode["async"]
    """sync: sample, train, push, and only then sample again. one_step_off: sample the next step while this one trains. async: sample
    as far ahead as `algo.max_staleness` allows."""
    max_concurrent: int = 16
    """Episodes at the same time, over all workers."""
    adaptive_concurrency: bool = False
    """Start with `min_concurrent` episodes, and follow the engine's queue and key-value cache up to `max_concurrent`."""
    min_concurrent: int = 4
    """The least that `adaptive_concurrency` goes down to."""
    extra_tasks: int = 0
    """Tasks that a step starts beyond `tasks_per_step`; once enough groups are complete, the rest are stopped."""
    extra_members: int = 0
    """Rollouts that a group starts beyond `algo.group_size`; once enough have a reward, the rest are stopped."""
    refill_limit: float = 1.0
    """Where `algo.shaping.drop_zero_variance` drops groups of equal rewards, other tasks take their place: at most so many for
    one step, as a multiple of `tasks_per_step`; 0: none."""
    tasks_per_step: int = 8
    """Tasks of one training step; each is run `algo.group_size` times."""
    max_context_tokens: int = 96_000
    """Budget of one conversation, prompt and reply together."""
    max_response_tokens: int = 32_768
    """Cap of one generation; each turn's cap is clamped to what the context has left."""
    max_turns: int | None = None
    """Generations of one agent run; none when null."""
    guard_s: float | None = None
    """Wall-clock guard over a whole rollout; null: agent + all runs of grading + 180 s."""
    retries: int = 2
    """Retries of a rollout that infrastructure broke."""
    workspace_timeout_s: float = 600.0
    """For each of: preparing the repository in a sandbox, all of the task's pre_commands, taking the diff."""
    warm_sandboxes: int = 0
    """Sandboxes that each worker keeps booted ahead, of the images that it has just used; worth it where boots take seconds."""
    save: SaveRollouts = SaveRollouts.all
    failures: FailuresConfig = field(default_factory=FailuresConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)

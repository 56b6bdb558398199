"""Schema of `rollout/`: how many agent runs, how long, and how tokens are drawn."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class SaveRollouts(StrEnum):
    """Which rollouts are written to the run folder."""

    all = "all"
    failures = "failures"
    """Those that were not solved."""
    none = "none"


@dataclass(slots=True, kw_only=True)
class SamplingConfig:
    """How the policy is sampled; the agent program has no say in it (law 3)."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    """-1: off."""
    min_p: float = 0.0
    stop_token_ids: list[int] = field(default_factory=list)
    """Besides the model's own."""


@dataclass(slots=True, kw_only=True)
class RolloutConfig:
    """Agent runs."""

    max_concurrent: int = 16
    """Episodes at the same time, over all workers."""
    tasks_per_step: int = 8
    """Tasks of one training step; each is run `algo.group_size` times."""
    max_context_tokens: int = 96_000
    """Budget of one conversation, prompt and reply together."""
    max_response_tokens: int = 32_768
    """Cap of one generation; each turn's cap is clamped to what the context has left."""
    max_turns: int | None = None
    """Generations of one agent run; none when null."""
    guard_s: float | None = None
    """Wall-clock guard over a whole rollout; null: agent + grading + 180 s."""
    retries: int = 2
    """How often a rollout that infrastructure broke is run again."""
    workspace_timeout_s: float = 600.0
    """For preparing the repository in a sandbox, and for taking the diff."""
    warm_sandboxes: int = 0
    """Sandboxes that each worker keeps booted ahead, of the images that it has just used; worth it where boots take seconds."""
    save: SaveRollouts = SaveRollouts.all
    sampling: SamplingConfig = field(default_factory=SamplingConfig)


SCHEMAS: Final = {"rollout": RolloutConfig}

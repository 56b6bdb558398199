"""Reward shaping: the formulas of this room, put together as the config says.

Penalties are added to graded rewards; filters look at what was graded, not at what was added, since a group of equal grades has
nothing to compare however different its lengths are. Greedy baselines are shaped, and left out, like the rest; a group that has lost
its only one has nothing to be compared with, and ReMax's advantage is 0 for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rl_agent.algo.base import ShapedBatch
from rl_agent.algo.shaping.length import length_rewards
from rl_agent.algo.shaping.overlong import overlong_penalty
from rl_agent.algo.shaping.shares import share_penalty
from rl_agent.algo.shaping.zero_variance import has_variance
from rl_agent.errors import ConfigError, LawError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.algo.batch import Bool, Float32, RolloutFacts, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardShaping:
    """See `ShapingConfig`."""

    overlong_penalty: float
    overlong_buffer: float
    overlong_limit: int
    drop_truncated: bool
    length_weight: float
    success: float
    format_penalty: float
    tool_error_penalty: float
    drop_zero_variance: bool

    def __post_init__(self) -> None:
        if not 0.0 < self.overlong_buffer <= 1.0:
            raise ConfigError(
                f"algo.shaping.overlong_buffer is {self.overlong_buffer}; it is a share: above 0 and at most 1"
            )

    def __call__(self, batch: TrainBatch) -> ShapedBatch:
        """Metrics: `shaping/<penalty>` is its mean over rollouts, `shaping/dropped_<reason>` a number of rollouts."""
        added = dict(self._added(batch))
        metrics = {f"shaping/{name}": float(values.mean()) for name, values in added.items()}
        kept = np.ones(len(batch.rewards), dtype=np.bool_)
        for name, keep in self._filters(batch):
            metrics[f"shaping/dropped_{name}"] = float((kept & ~keep).sum())
            kept &= keep
        rewards = batch.rewards
        for values in added.values():
            rewards = (rewards + values).astype(np.float32)
        shaped = batch if not added else replace(batch, rewards=rewards)
        if not kept.all():
            shaped = shaped.select(np.flatnonzero(kept).astype(np.int32))[0]
        return ShapedBatch(batch=shaped, metrics=metrics)

    def _added(self, batch: TrainBatch) -> Iterator[tuple[str, Float32]]:
        if self.overlong_penalty:
            longest = np.zeros(len(batch.rewards), dtype=np.int32)
            np.maximum.at(longest, batch.segment_rollout, batch.segment_lengths)
            yield (
                "overlong",
                overlong_penalty(
                    longest,
                    limit=self.overlong_limit,
                    buffer=self.overlong_buffer * self.overlong_limit,
                    factor=self.overlong_penalty,
                ),
            )
        if self.length_weight:
            lengths = length_rewards(batch.trained_tokens(), batch.rollout_group, batch.rewards >= self.success)
            yield "length", (self.length_weight * lengths).astype(np.float32)
        if self.format_penalty:
            facts = _facts(batch, "format_penalty")
            yield "format", share_penalty(facts.ill_formed, facts.turns, self.format_penalty)
        if self.tool_error_penalty:
            facts = _facts(batch, "tool_error_penalty")
            yield "tool_error", share_penalty(facts.tool_errors, facts.tool_calls, self.tool_error_penalty)

    def _filters(self, batch: TrainBatch) -> Iterator[tuple[str, Bool]]:
        if self.drop_truncated:
            yield "truncated", ~_facts(batch, "drop_truncated").truncated
        if self.drop_zero_variance:
            yield "zero_variance", has_variance(batch.rewards, batch.rollout_group)


def _facts(batch: TrainBatch, wanted_by: str) -> RolloutFacts:
    if batch.facts is None:
        raise LawError(f"algo.shaping.{wanted_by} needs to know how the rollouts went, but the batch has no facts")
    return batch.facts

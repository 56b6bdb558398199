"""Reward shaping: penalties that are added to the graded rewards, and filters on rollouts.

Filters look at the graded rewards, not at the penalties: a group of equal grades has nothing to compare however different its lengths
are. Greedy baselines are shaped and filtered like the other rollouts. A group that loses its only baseline gets ReMax advantage 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from rl_agent.algo.base import ShapedBatch
from rl_agent.algo.groups import group_bounds, has_variance
from rl_agent.config.algo import ShapingConfig
from rl_agent.errors import ConfigError, LawError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.algo.batch import Bool, Float32, Int32, RolloutFacts, TrainBatch


@dataclass(kw_only=True)
class RewardsConfig(ShapingConfig):
    """Penalties and filters. All are off by default. Amounts are in units of reward."""

    overlong_penalty: float = 0.0
    """Penalty of a rollout whose longest segment reaches `overlong_limit`. It grows linearly over the buffer."""
    overlong_buffer: float = 0.2
    """Last fraction of the limit, over which the penalty grows."""
    overlong_limit: int = 20480
    """Tokens of a segment, prompts included."""
    drop_truncated: bool = False
    """Leave out rollouts that a limit on tokens, turns or time cut short."""
    length_weight: float = 0.0
    """Weight of the length reward: +0.5 for the group's shortest rollout to -0.5 for its longest. A failure never gains."""
    success: float = 1.0
    """Smallest reward of a success, for the length reward."""
    format_penalty: float = 0.0
    """Penalty for replies whose tool call cannot be parsed, times their share."""
    tool_error_penalty: float = 0.0
    """Penalty for tool calls that end in an error, times their share."""
    drop_zero_variance: bool = False
    """Leave out groups whose graded rewards are all equal."""

    @override
    def build(self) -> Rewards:
        return Rewards(self)


class Rewards:
    """See `RewardsConfig`."""

    def __init__(self, config: RewardsConfig) -> None:
        if not 0.0 < config.overlong_buffer <= 1.0:
            raise ConfigError(
                f"algo.shaping.overlong_buffer: {config.overlong_buffer} is not a fraction. Set it above 0 and at most 1."
            )
        self.config = config

    def __call__(self, batch: TrainBatch) -> ShapedBatch:
        """Shape a batch. `shaping/<penalty>`: mean over rollouts. `shaping/dropped_<reason>`: number of rollouts."""
        added = dict(self._penalties(batch))
        metrics = {f"shaping/{name}": float(values.mean()) for name, values in added.items()}
        kept = np.ones(len(batch.rewards), dtype=np.bool_)
        for name, keep in self._filters(batch):
            metrics[f"shaping/dropped_{name}"] = float((kept & ~keep).sum())
            kept &= keep
        shaped = batch
        for values in added.values():
            shaped = replace(shaped, rewards=(shaped.rewards + values).astype(np.float32))
        if not kept.all():
            shaped = shaped.select(np.flatnonzero(kept).astype(np.int32))[0]
        return ShapedBatch(batch=shaped, metrics=metrics)

    def _penalties(self, batch: TrainBatch) -> Iterator[tuple[str, Float32]]:
        config = self.config
        if config.overlong_penalty:
            longest = np.zeros(len(batch.rewards), dtype=np.int32)
            np.maximum.at(longest, batch.segment_rollout, batch.segment_lengths)
            limit, buffer = config.overlong_limit, config.overlong_buffer * config.overlong_limit
            yield "overlong", overlong_penalty(longest, limit=limit, buffer=buffer, factor=config.overlong_penalty)
        if config.length_weight:
            lengths = length_rewards(batch.trained_tokens(), batch.rollout_group, batch.rewards >= config.success)
            yield "length", (config.length_weight * lengths).astype(np.float32)
        if config.format_penalty:
            facts = _facts(batch, "format_penalty")
            yield "format", share_penalty(facts.ill_formed, facts.turns, config.format_penalty)
        if config.tool_error_penalty:
            facts = _facts(batch, "tool_error_penalty")
            yield "tool_error", share_penalty(facts.tool_errors, facts.tool_calls, config.tool_error_penalty)

    def _filters(self, batch: TrainBatch) -> Iterator[tuple[str, Bool]]:
        if self.config.drop_truncated:
            yield "truncated", ~_facts(batch, "drop_truncated").truncated
        if self.config.drop_zero_variance:
            yield "zero_variance", has_variance(batch.rewards, batch.rollout_group)


def _facts(batch: TrainBatch, option: str) -> RolloutFacts:
    if batch.facts is None:
        raise LawError(f"algo.shaping.{option}: the batch has no facts about its rollouts")
    return batch.facts


def overlong_penalty(lengths: Int32, *, limit: float, buffer: float, factor: float) -> Float32:
    """Return the soft penalty of overlong rollouts (DAPO, arXiv 2503.14476, equation 13): [R] int32 tokens -> [R] float32.

        penalty = min(-(length - (limit - buffer)) / buffer * factor, 0)

    Worked, limit 100, buffer 20, factor 1: lengths 70, 90, 100, 110: 0, -0.5, -1, -1.5.
    """
    over = lengths.astype(np.float64) - (limit - buffer)
    return np.minimum(-over / buffer * factor, 0.0).astype(np.float32)


def length_rewards(lengths: Int32, groups: Int32, solved: Bool) -> Float32:
    """Return the length reward: shorter is better among the rollouts of a task (Kimi k1.5, arXiv 2501.12599, section 2.3.3).

        x = 0.5 - (length - shortest) / (longest - shortest)        of the group
        a success gets x, a failure min(x, 0); where all lengths are equal, 0

    Worked: lengths 10, 20, 30, the last a failure: 0.5, 0, -0.5. [R] int32 trained tokens, [R] int32, [R] bool -> [R] float32.
    """
    shortest, longest = group_bounds(lengths, groups)
    spread = longest - shortest
    place = (lengths - shortest) / np.where(spread > 0, spread, 1.0)
    reward = np.where(spread > 0, 0.5 - place, 0.0)
    return np.where(solved, reward, np.minimum(reward, 0.0)).astype(np.float32)


def share_penalty(wrong: Int32, total: Int32, factor: float) -> Float32:
    """Return `-factor * wrong / total`, 0 if there is none: [R] int32 each -> [R] float32.

    Worked, factor 0.2: 1 of 4 turns ill-formed: -0.05.
    """
    penalty: Float32 = (-factor * np.minimum(wrong, total) / np.maximum(total, 1)).astype(np.float32)
    return penalty

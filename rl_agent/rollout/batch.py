"""Batches: groups of rollouts as the flat arrays of one training step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from rl_agent.algo.batch import RolloutFacts, TrainBatch
from rl_agent.harnesses.base import ExitReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.rollout.group import Group, Rollout
    from rl_agent.tokens.segment import Segment


def build_batch(groups: Sequence[Group]) -> TrainBatch | None:
    """Concatenate all segments of all rollouts with a reward. Return None if there is no such rollout.

    Rollouts without a reward (aborted, infra_error) are left out, so they never enter a group's statistics (law 4).
    """
    rollouts: list[Rollout] = []
    group_index: list[int] = []
    segments: list[Segment] = []
    segment_rollout: list[int] = []
    for number, group in enumerate(groups):
        for rollout in group.rollouts:
            if rollout.reward is None or not rollout.segments:
                continue
            segment_rollout += [len(rollouts)] * len(rollout.segments)
            segments += rollout.segments
            group_index.append(number)
            rollouts.append(rollout)
    if not rollouts:
        return None
    return TrainBatch(
        tokens=np.concatenate([segment.tokens for segment in segments]),
        loss_mask=np.concatenate(
            [
                segment.loss_mask & (not rollouts[number].greedy)
                for segment, number in zip(segments, segment_rollout, strict=True)
            ]
        ),
        rollout_logprobs=np.concatenate([segment.rollout_logprobs for segment in segments]),
        weight_versions=np.concatenate([segment.weight_versions for segment in segments]),
        segment_lengths=np.array([len(segment.tokens) for segment in segments], dtype=np.int32),
        segment_rollout=np.array(segment_rollout, dtype=np.int32),
        rewards=np.array([rollout.reward for rollout in rollouts], dtype=np.float32),
        rollout_group=np.array(group_index, dtype=np.int32),
        facts=_facts(rollouts),
    )


_CUT_SHORT: Final = (ExitReason.TURN_LIMIT, ExitReason.TIME_BUDGET)


def _facts(rollouts: Sequence[Rollout]) -> RolloutFacts | None:
    """Return the facts of the rollouts, or None if one has no session statistics: missing is not zero (law 4)."""
    told = [rollout.stats for rollout in rollouts if rollout.stats is not None]
    if len(told) < len(rollouts):
        return None
    pairs = list(zip(rollouts, told, strict=True))
    return RolloutFacts(
        truncated=np.array(
            [
                rollout.exit_reason in _CUT_SHORT or bool(stats.truncated or stats.context_full or stats.turn_limit)
                for rollout, stats in pairs
            ],
            dtype=np.bool_,
        ),
        greedy=np.array([rollout.greedy for rollout in rollouts], dtype=np.bool_),
        turns=np.array([len(rollout.turns) for rollout in rollouts], dtype=np.int32),
        ill_formed=np.array([stats.ill_formed for stats in told], dtype=np.int32),
        tool_calls=np.array([stats.tool_calls for stats in told], dtype=np.int32),
        tool_errors=np.array([stats.tool_errors for stats in told], dtype=np.int32),
    )

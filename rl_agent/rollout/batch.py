"""From groups of rollouts to the flat arrays of one training step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rl_agent.algo.batch import TrainBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_agent.rollout.group import Group, Rollout
    from rl_agent.tokens.segment import Segment


def build_batch(groups: Sequence[Group]) -> TrainBatch | None:
    """All segments of all rollouts that have a reward, one after the other; None if there is none.

    Rollouts without a reward (aborted, infra_error) are left out and so never enter a group's statistics (law 4).
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
        loss_mask=np.concatenate([segment.loss_mask for segment in segments]),
        rollout_logprobs=np.concatenate([segment.rollout_logprobs for segment in segments]),
        weight_versions=np.concatenate([segment.weight_versions for segment in segments]),
        segment_lengths=np.array([len(segment.tokens) for segment in segments], dtype=np.int32),
        segment_rollout=np.array(segment_rollout, dtype=np.int32),
        rewards=np.array([rollout.reward for rollout in rollouts], dtype=np.float32),
        rollout_group=np.array(group_index, dtype=np.int32),
    )

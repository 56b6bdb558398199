"""Rollouts as trajectories of their own tokens: what the policy did not write is no action and takes no time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from rl_agent.algo.batch import Float32, Int32, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectories:
    """The trained tokens of the batch, rollout after rollout, each in the order of time: `n` in all."""

    places: npt.NDArray[np.int64]
    """[n]: where they stand in the batch's [T] arrays."""
    lengths: Int32
    """[R]: how many each rollout has."""
    rewards: npt.NDArray[np.float64]
    """[n]: the rollout's reward at its last trained token, and what single tokens earn."""

    def spread(self, values: npt.NDArray[Any], total: int) -> Float32:
        """[n] -> [T] float32, 0 at tokens that do not train."""
        spread = np.zeros(total, dtype=np.float32)
        spread[self.places] = values
        return spread


def trajectories(batch: TrainBatch) -> Trajectories:
    """See `Trajectories`."""
    places = np.flatnonzero(batch.loss_mask)
    rollout = batch.token_rollout()[places]
    if (np.diff(rollout) < 0).any():  # segments of one rollout do not stand together
        order = np.argsort(rollout, kind="stable")
        places, rollout = places[order], rollout[order]
    lengths = np.bincount(rollout, minlength=len(batch.rewards)).astype(np.int32)
    rewards = np.zeros(len(places)) if batch.token_rewards is None else batch.token_rewards[places].astype(np.float64)
    acted = lengths > 0
    rewards[np.cumsum(lengths)[acted] - 1] += batch.rewards[acted]
    return Trajectories(places=places, lengths=lengths, rewards=rewards)

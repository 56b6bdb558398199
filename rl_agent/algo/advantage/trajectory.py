"""Rollouts as trajectories of their own tokens: what the policy did not write is no action and takes no time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from rl_agent.algo.batch import Bool, Float32, Int32, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectories:
    """The trained tokens of the batch, rollout after rollout, each in the order of time: `n` in all."""

    places: npt.NDArray[np.int64] | Bool
    """Where they stand in the batch's [T] arrays: [n] indices, or the [T] mask where they stand in this order already."""
    lengths: Int32
    """[R]: how many each rollout has."""
    rewards: Float32
    """[R]: what each rollout earns with its last trained token."""
    token_rewards: Float32 | None
    """[n]: what single tokens earn; None: nothing."""

    def earned(self) -> npt.NDArray[np.float64]:
        """[n] float64: the rewards of both kinds."""
        own = self.token_rewards
        values = np.zeros(int(self.lengths.sum())) if own is None else own.astype(np.float64)
        acted = self.lengths > 0
        values[np.cumsum(self.lengths)[acted] - 1] += self.rewards[acted]
        return values

    def spread(self, values: npt.NDArray[Any], total: int) -> Float32:
        """[n] -> [T] float32, 0 at tokens that do not train."""
        spread = np.zeros(total, dtype=np.float32)
        spread[self.places] = values
        return spread


def trajectories(batch: TrainBatch) -> Trajectories:
    """See `Trajectories`."""
    places: npt.NDArray[Any] = batch.loss_mask
    if (np.diff(batch.segment_rollout) < 0).any():  # rollouts do not stand one after the other
        places = np.flatnonzero(batch.loss_mask)
        places = places[np.argsort(batch.token_rollout()[places], kind="stable")]
    earned = batch.token_rewards
    return Trajectories(
        places=places,
        lengths=batch.trained_tokens(),
        rewards=batch.rewards,
        token_rewards=None if earned is None else earned[places],
    )

"""From rewards of rollouts to values of tokens: spreading, whitening, trajectories and discounted sums."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from rl_agent.algo.batch import Bool, Float32, Int32, TrainBatch

VARIANCE_FLOOR: Final = 1.0e-8
"""Added to a variance before dividing by its root."""


def to_tokens(batch: TrainBatch, of_rollout: npt.NDArray[Any], *, whiten: bool) -> Float32:
    """Give every token the value of its rollout: [R] -> [T] float32. `whiten` whitens over the trained tokens."""
    values = np.repeat(of_rollout.astype(np.float32)[batch.segment_rollout], batch.segment_lengths)
    return whitened(values, batch.loss_mask).astype(np.float32) if whiten else values


def whitened(values: npt.NDArray[Any], mask: Bool | None = None) -> npt.NDArray[np.float64]:
    """Subtract the mean and divide by the standard deviation (unbiased) of the masked values: [T] -> [T] float64.

    Worked: 5.5, 4, 1.5 with mask 1, 0, 1: mean 3.5, deviation 2.8284: 0.7071, 0.1768, -0.7071. Fewer than two masked values, or
    equal ones, give 0.
    """
    own = (values if mask is None else values[mask]).astype(np.float64)
    if len(own) < 2 or own.min() == own.max():
        return np.zeros(len(values))
    white: npt.NDArray[np.float64] = (values - own.mean()) / np.sqrt(own.var(ddof=1) + VARIANCE_FLOOR)
    return white


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectories:
    """The trained tokens of the batch, rollout after rollout, each in the order of time: `n` in all.

    Tokens that the policy did not write are no actions and take no time.
    """

    places: npt.NDArray[np.int64]
    """[n]: indices into the batch's [T] arrays."""
    lengths: Int32
    """[R]: number of trained tokens of each rollout."""
    rewards: npt.NDArray[np.float64]
    """[n]: reward of each token. The reward of a rollout comes with its last trained token."""

    def spread(self, values: npt.NDArray[Any], total: int) -> Float32:
        """Put values of trained tokens in their places: [n] -> [T] float32, 0 at tokens that do not train."""
        spread = np.zeros(total, dtype=np.float32)
        spread[self.places] = values
        return spread


def trajectories(batch: TrainBatch) -> Trajectories:
    """Return the trajectories of a batch."""
    places = np.flatnonzero(batch.loss_mask)
    places = places[np.argsort(batch.token_rollout()[places], kind="stable")]
    lengths = batch.trained_tokens()
    rewards = np.zeros(len(places)) if batch.token_rewards is None else batch.token_rewards[places].astype(np.float64)
    rewards[_last(lengths)] += batch.rewards[lengths > 0]
    return Trajectories(places=places, lengths=lengths, rewards=rewards)


def discounted_sums(values: npt.NDArray[Any], lengths: npt.NDArray[Any], discount: float) -> npt.NDArray[np.float64]:
    """Sum over the rest of each trajectory: S_t = x_t + d * S_{t+1}.

    Worked: x = 1, 2, 3 and d = 0.5: S = 2.75, 3.5, 3.

    Args:
        values: [n], trajectories one after the other.
        lengths: [R].
        discount: d.

    Returns: [n] float64.
    """
    sums: list[float] = []
    for trajectory in np.split(values, np.cumsum(lengths)):
        sums += [*accumulate(trajectory[::-1].tolist(), lambda rest, own: own + discount * rest)][::-1]
    return np.array(sums)


def following(values: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the value of each trajectory's next token, 0 after its last: [n], [R] -> [n] float64."""
    moved = np.append(values[1:], 0.0)[: len(values)].astype(np.float64)
    moved[_last(lengths)] = 0.0
    return moved


def _last(lengths: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the index in [n] of the last token of each trajectory that has one."""
    ends: npt.NDArray[np.int64] = np.cumsum(lengths)[np.asarray(lengths) > 0] - 1
    return ends

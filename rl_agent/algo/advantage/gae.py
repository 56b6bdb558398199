"""Generalised advantage estimation, with a critic (arXiv 1506.02438, equation 16); PPO's advantage.

    delta_t = r_t + gamma * V_{t+1} - V_t        V after the last trained token is 0
    A_t     = delta_t + gamma * lambda * A_{t+1}
    target of the critic = A_t + V_t

and so, with the deltas written out, A_t = G_t - V_t for the lambda-return, which is what is computed (one array less, and no
difference of large numbers on the way):

    G_t = r_t + gamma * (1 - lambda) * V_{t+1} + gamma * lambda * G_{t+1}

over a rollout's trained tokens alone: t + 1 is the policy's own next token, whatever the environment said in between. Worked: r =
1, 2, 3, V = 0.5, 1, 1.5, gamma = lambda = 1: A = 5.5, 4, 1.5, targets 6, 5, 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rl_agent.algo.advantage.discount import discounted_sums
from rl_agent.algo.advantage.spread import standardised
from rl_agent.algo.advantage.trajectory import trajectories
from rl_agent.algo.scores import Need

if TYPE_CHECKING:
    import numpy.typing as npt

    from rl_agent.algo.batch import Float32, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class GaeAdvantage:
    """See `GaeAdvantageConfig`."""

    gamma: float
    lam: float
    critic_lr: float
    value_clip: float | None
    whiten: bool

    @property
    def needs(self) -> frozenset[Need]:
        """The critic's values."""
        return frozenset({Need.VALUES})

    def __call__(self, batch: TrainBatch) -> Float32:
        """[T] float32, 0 at tokens that do not train."""
        return self.with_targets(batch)[0]

    def with_targets(self, batch: TrainBatch) -> tuple[Float32, Float32]:
        """Advantages, and what the critic should have said: [T] float32 each."""
        own = trajectories(batch)
        old = batch.scores.get(Need.VALUES)
        values = old[own.places]
        found = generalised_advantages(own.earned(), values, own.lengths, gamma=self.gamma, lam=self.lam)
        advantages = own.spread(found, len(old))
        targets = (torch.from_numpy(old) + torch.from_numpy(advantages)).numpy()
        return (own.spread(standardised(found), len(old)) if self.whiten else advantages), targets


def following(values: npt.NDArray[Any], lengths: npt.NDArray[Any], factor: float) -> npt.NDArray[np.float64]:
    """[n] values, [R] lengths -> [n] float64: the value of a trajectory's next token, times `factor`; 0 after its last."""
    moved = np.empty(len(values))
    np.multiply(values[1:], factor, out=moved[:-1])
    moved[np.cumsum(lengths)[np.asarray(lengths) > 0] - 1] = 0.0
    return moved


def generalised_advantages(
    rewards: npt.NDArray[Any], values: npt.NDArray[Any], lengths: npt.NDArray[Any], *, gamma: float, lam: float
) -> npt.NDArray[np.float64]:
    """[n] rewards and values of trajectories that stand one after the other, [R] their lengths -> [n] float64."""
    earned = following(values, lengths, gamma * (1.0 - lam))
    earned += rewards
    advantages = discounted_sums(earned, lengths, gamma * lam)
    advantages -= values
    return advantages

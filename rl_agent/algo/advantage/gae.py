"""Generalized advantage estimation with a critic (arXiv 1506.02438, equation 16): PPO's advantage.

    delta_t = r_t + gamma * V_{t+1} - V_t        V after the last trained token is 0
    A_t     = delta_t + gamma * lambda * A_{t+1}
    target of the critic = A_t + V_t

The sums run over a rollout's trained tokens alone: t + 1 is the policy's own next token, whatever the environment said in between.
Worked: r = 1, 2, 3, V = 0.5, 1, 1.5, gamma = lambda = 1: A = 5.5, 4, 1.5, targets 6, 5, 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from rl_agent.algo.credit import discounted_sums, following, trajectories, whitened
from rl_agent.config.algo import AdvantageConfig, Need

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from rl_agent.algo.batch import Float32, TrainBatch


@dataclass(kw_only=True)
class GaeConfig(AdvantageConfig):
    """Generalized advantage estimation with a critic."""

    needs = frozenset({Need.VALUES})
    needs_critic = True

    gamma: float = 1.0
    """Discount of a reward per trained token before it."""
    lam: float = 0.95
    """Lambda: 1 trusts returns, 0 the critic."""
    critic_lr: float = 1.0e-5
    """Learning rate of the critic. It is constant, whatever the schedule of `algo.lr` is."""
    value_clip: float | None = 0.2
    """Maximum distance of a value from the one before the step; null: no limit."""
    whiten: bool = True
    """Whiten over the trained tokens of the batch: subtract their mean, divide by their standard deviation."""

    @override
    def build(self) -> Gae:
        return Gae(self)


class Gae:
    """See `GaeConfig`."""

    def __init__(self, config: GaeConfig) -> None:
        self.config = config
        self.critic_lr = config.critic_lr
        self.value_clip = config.value_clip

    def __call__(self, batch: TrainBatch) -> Float32:
        """Return the advantages: [T] float32, 0 at tokens that do not train."""
        return self.with_targets(batch)[0]

    def with_targets(self, batch: TrainBatch) -> tuple[Float32, Float32]:
        """Return the advantages and the targets of the critic: [T] float32 each."""
        own = trajectories(batch)
        old = batch.scores.get(Need.VALUES)
        found = generalized_advantages(
            own.rewards, old[own.places], own.lengths, gamma=self.config.gamma, lam=self.config.lam
        )
        targets = old + own.spread(found, len(old))
        return own.spread(whitened(found) if self.config.whiten else found, len(old)), targets


def generalized_advantages(
    rewards: npt.NDArray[Any], values: npt.NDArray[Any], lengths: npt.NDArray[Any], *, gamma: float, lam: float
) -> npt.NDArray[np.float64]:
    """Return the advantage of each token: [n] rewards and values of trajectories, [R] their lengths -> [n] float64."""
    deltas = rewards + gamma * following(values, lengths) - values
    return discounted_sums(deltas, lengths, gamma * lam)


def value_loss(values: Tensor, old_values: Tensor, targets: Tensor, clip: float | None) -> Tensor:
    """Return the critic's loss, half the squared error, clipped like the policy's ratio: [t] float32.

        loss = 0.5 * max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2)        (arXiv 1707.06347, section 5; 2005.12729)

    Worked, c = 0.2: V = 1, V_old = 0.5, R = 2: clipped 0.7, 0.5 * max(1, 1.69) = 0.845, and no gradient.
    """
    free = (values - targets).square()
    if clip is None:
        return 0.5 * free
    near = old_values + (values - old_values).clamp(-clip, clip)
    return 0.5 * free.maximum((near - targets).square())

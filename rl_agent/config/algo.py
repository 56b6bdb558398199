"""The schema of conf/algo: the learning algorithm and the parts it is put together from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class SegmentCredit(StrEnum):
    """What each of a rollout's K segments gets of the rollout's advantage."""

    shared = "shared"
    """Each gets all of it."""
    divided = "divided"
    """Each gets 1 / K of it."""


class LrDecay(StrEnum):
    """What the learning rate does after the warm-up."""

    constant = "constant"
    """It stays."""
    linear = "linear"
    """It falls in a straight line to `lr_min_ratio * lr` at the last step."""
    cosine = "cosine"
    """It falls along half a cosine to `lr_min_ratio * lr` at the last step."""


@dataclass(slots=True, kw_only=True)
class AlgorithmConfig:
    """A bundle: chooses the parts (`algo/advantage`, `algo/loss`, `algo/aggregation`) and holds what no part owns."""

    _target_: str = "rl_agent.algo.algorithm.Algorithm"
    advantage: Any = "???"
    """Rewards -> advantage of each token."""
    loss: Any = "???"
    """Log-probabilities and advantages -> loss of each token."""
    aggregation: Any = "???"
    """Weight of each token's loss in the batch's loss."""
    lr: float = 1.0e-6
    lr_warmup_steps: int = 0
    """The learning rate rises in a straight line over this many steps."""
    lr_decay: LrDecay = LrDecay.constant
    lr_min_ratio: float = 0.1
    """Where the decay ends, as a part of `lr`."""
    epochs: int = 1
    """Passes over each batch; one optimizer step a minibatch."""
    minibatches: int = 1
    """Into how many parts (of whole rollouts) an epoch cuts the batch."""
    group_size: int = 8
    """Rollouts of one task that are compared with each other."""
    max_staleness: int = 0
    """How many pushed weight versions a sampled token may lag behind the trainer."""
    segment_credit: SegmentCredit = SegmentCredit.shared


@dataclass(slots=True, kw_only=True)
class GrpoAdvantageConfig:
    """Reward against the group's mean."""

    _target_: str = "rl_agent.algo.advantage.grpo.GrpoAdvantage"
    divide_by_std: bool = True
    epsilon: float = 1.0e-6
    """Added to the standard deviation."""


@dataclass(slots=True, kw_only=True)
class ConstantAdvantageConfig:
    """The same advantage for every token: imitation."""

    _target_: str = "rl_agent.algo.advantage.constant.ConstantAdvantage"
    value: float = 1.0


@dataclass(slots=True, kw_only=True)
class PpoClipLossConfig:
    """PPO's clipped surrogate."""

    _target_: str = "rl_agent.algo.loss.ppo_clip.PpoClipLoss"
    clip_low: float = 0.2
    """Distance below 1 at which the ratio is clipped."""
    clip_high: float = 0.28
    """Distance above 1 at which the ratio is clipped."""


@dataclass(slots=True, kw_only=True)
class SftLossConfig:
    """Negative log-likelihood."""

    _target_: str = "rl_agent.algo.loss.sft.SftLoss"


@dataclass(slots=True, kw_only=True)
class TokenMeanConfig:
    """Every trained token counts the same."""

    _target_: str = "rl_agent.algo.aggregation.token_mean.TokenMean"


@dataclass(slots=True, kw_only=True)
class RolloutMeanConfig:
    """Every rollout counts the same, however long and in however many segments."""

    _target_: str = "rl_agent.algo.aggregation.rollout_mean.RolloutMean"


@dataclass(slots=True, kw_only=True)
class ContextMeanConfig:
    """Trained tokens count fully, the tokens around them a little."""

    _target_: str = "rl_agent.algo.aggregation.context_mean.ContextMean"
    context_weight: float = 0.1
    """Weight of a token that the policy did not write, against 1 for one that it did."""


SCHEMAS: Final = {"algorithm": AlgorithmConfig}
"""Schemas of conf/algo/*.yaml."""

ADVANTAGE_SCHEMAS: Final = {"grpo": GrpoAdvantageConfig, "constant": ConstantAdvantageConfig}
"""Schemas of conf/algo/advantage/*.yaml."""

LOSS_SCHEMAS: Final = {"ppo_clip": PpoClipLossConfig, "sft": SftLossConfig}
"""Schemas of conf/algo/loss/*.yaml."""

AGGREGATION_SCHEMAS: Final = {
    "token_mean": TokenMeanConfig,
    "rollout_mean": RolloutMeanConfig,
    "context_mean": ContextMeanConfig,
}
"""Schemas of conf/algo/aggregation/*.yaml."""

"""The schema of conf/algo: the learning algorithm and the parts that say what each token is worth and how much it counts.

The other parts are in `algo_loss` and `algo_parts`.
"""

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
    """A bundle: chooses the six parts (`algo/advantage`, `algo/loss`, ...) and holds what no part owns."""

    _target_: str = "rl_agent.algo.algorithm.Algorithm"
    advantage: Any = "???"
    """Rewards -> advantage of each token."""
    loss: Any = "???"
    """Log-probabilities and advantages -> loss of each token."""
    correction: Any = "???"
    """How far the sampler may be from the trainer, and what is done about it."""
    kl: Any = "???"
    """What leaving a reference policy costs."""
    aggregation: Any = "???"
    """Weight of each token's loss in the batch's loss."""
    shaping: Any = "???"
    """What is added to graded rewards, and which rollouts train."""
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
    """False: Dr. GRPO's."""
    epsilon: float = 1.0e-6
    """Added to the standard deviation."""
    whiten: bool = False
    """Then subtract the mean over the batch's trained tokens, and divide by their standard deviation."""


@dataclass(slots=True, kw_only=True)
class RlooAdvantageConfig:
    """Reward against the mean of the group's others."""

    _target_: str = "rl_agent.algo.advantage.rloo.RlooAdvantage"
    whiten: bool = False
    """As in advantage=grpo."""


@dataclass(slots=True, kw_only=True)
class ReinforcePlusPlusAdvantageConfig:
    """Discounted returns, whitened over the batch."""

    _target_: str = "rl_agent.algo.advantage.reinforce_plus_plus.ReinforcePlusPlusAdvantage"
    gamma: float = 1.0
    """Discount of a reward for each trained token before it."""
    baseline: bool = False
    """Subtract the group's mean reward first."""
    whiten: bool = True
    """As in advantage=grpo; what the name stands for."""


@dataclass(slots=True, kw_only=True)
class MaxRlAdvantageConfig:
    """Reward above the group's mean, in parts of that mean."""

    _target_: str = "rl_agent.algo.advantage.maxrl.MaxRlAdvantage"
    epsilon: float = 1.0e-6
    """Added to the mean."""
    whiten: bool = False
    """As in advantage=grpo."""


@dataclass(slots=True, kw_only=True)
class OpoAdvantageConfig:
    """Reward against the group's mean weighted by length."""

    _target_: str = "rl_agent.algo.advantage.opo.OpoAdvantage"
    whiten: bool = False
    """As in advantage=grpo."""


@dataclass(slots=True, kw_only=True)
class PassAtKAdvantageConfig:
    """The chance that one of k rollouts succeeds."""

    _target_: str = "rl_agent.algo.advantage.pass_at_k.PassAtKAdvantage"
    k: int = 4
    success: float = 1.0
    """The least reward of a success."""
    whiten: bool = False
    """As in advantage=grpo."""


@dataclass(slots=True, kw_only=True)
class RemaxAdvantageConfig:
    """Reward against that of a greedy rollout of the same task."""

    _target_: str = "rl_agent.algo.advantage.remax.RemaxAdvantage"
    greedy_rollouts: int = 1
    """How many of a group's `algo.group_size` rollouts are sampled at temperature 0; they never train."""
    whiten: bool = False
    """As in advantage=grpo."""


@dataclass(slots=True, kw_only=True)
class GaeAdvantageConfig:
    """Generalised advantage estimation, with a critic."""

    _target_: str = "rl_agent.algo.advantage.gae.GaeAdvantage"
    gamma: float = 1.0
    """Discount of a reward for each trained token before it."""
    lam: float = 0.95
    """Lambda: 1 trusts returns, 0 the critic."""
    critic_lr: float = 1.0e-5
    """Constant, whatever `algo.lr` does."""
    value_clip: float | None = 0.2
    """How far a value may leave the one before the step; null: freely."""
    whiten: bool = True
    """As in advantage=grpo."""


@dataclass(slots=True, kw_only=True)
class ConstantAdvantageConfig:
    """The same advantage for every token: imitation."""

    _target_: str = "rl_agent.algo.advantage.constant.ConstantAdvantage"
    value: float = 1.0


@dataclass(slots=True, kw_only=True)
class TokenMeanConfig:
    """Every trained token counts the same."""

    _target_: str = "rl_agent.algo.aggregation.token_mean.TokenMean"


@dataclass(slots=True, kw_only=True)
class SequenceMeanConfig:
    """Every segment counts the same, however long."""

    _target_: str = "rl_agent.algo.aggregation.sequence_mean.SequenceMean"


@dataclass(slots=True, kw_only=True)
class RolloutMeanConfig:
    """Every rollout counts the same, however long and in however many segments."""

    _target_: str = "rl_agent.algo.aggregation.rollout_mean.RolloutMean"


@dataclass(slots=True, kw_only=True)
class TokenSumConfig:
    """The sum over trained tokens, divided by a constant."""

    _target_: str = "rl_agent.algo.aggregation.token_sum.TokenSum"
    constant: float = 1.0
    """Dr. GRPO: the most tokens that a rollout may have."""
    per_rollout: bool = True
    """Divide by the number of rollouts with a trained token as well."""


@dataclass(slots=True, kw_only=True)
class ContextMeanConfig:
    """Trained tokens count fully, the tokens around them a little."""

    _target_: str = "rl_agent.algo.aggregation.context_mean.ContextMean"
    context_weight: float = 0.1
    """Weight of a token that the policy did not write, against 1 for one that it did."""


SCHEMAS: Final = {"algorithm": AlgorithmConfig}
"""Schemas of conf/algo/*.yaml."""

ADVANTAGE_SCHEMAS: Final = {
    "grpo": GrpoAdvantageConfig,
    "rloo": RlooAdvantageConfig,
    "reinforce_plus_plus": ReinforcePlusPlusAdvantageConfig,
    "maxrl": MaxRlAdvantageConfig,
    "opo": OpoAdvantageConfig,
    "pass_at_k": PassAtKAdvantageConfig,
    "remax": RemaxAdvantageConfig,
    "gae": GaeAdvantageConfig,
    "constant": ConstantAdvantageConfig,
}
"""Schemas of conf/algo/advantage/*.yaml."""

AGGREGATION_SCHEMAS: Final = {
    "token_mean": TokenMeanConfig,
    "sequence_mean": SequenceMeanConfig,
    "rollout_mean": RolloutMeanConfig,
    "token_sum": TokenSumConfig,
    "context_mean": ContextMeanConfig,
}
"""Schemas of conf/algo/aggregation/*.yaml."""

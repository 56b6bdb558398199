"""Config of `algo`: the algorithm, the base configs of its six parts, and the enums that several parts share.

A part's own options stand beside its formula, in `rl_agent/algo/<part>/<option>.py`. What other code needs to know
about a part is an attribute of the part's base config here; subclasses override it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from omegaconf import MISSING
from typing_extensions import override

from rl_agent.config.plug_in import PlugInConfig, Problem, at_least
from rl_agent.errors import ConfigError

if TYPE_CHECKING:
    from rl_agent.algo.algorithm import Algorithm
    from rl_agent.algo.base import Advantage, Aggregation, Correction, Kl, Shaping, TokenLoss
    from rl_agent.config.schema import Config


class Need(StrEnum):
    """A score that a part of the algorithm requires. The values are the fields of `Scores`."""

    OLD_LOGPROBS = "old_logprobs"
    """Log-probabilities under the trainer's weights before the first update."""
    REFERENCE_LOGPROBS = "reference_logprobs"
    """Log-probabilities under a frozen reference policy."""
    TEACHER_LOGPROBS = "teacher_logprobs"
    """Log-probabilities under a frozen teacher."""
    VALUES = "values"
    """Values of the critic."""


FROZEN = frozenset({Need.REFERENCE_LOGPROBS, Need.TEACHER_LOGPROBS})
"""Scores that come from a frozen policy, which the trainer must load."""


class SegmentCredit(StrEnum):
    """Share of a rollout's advantage that each of its K segments gets."""

    shared = "shared"
    """Every segment gets the full advantage."""
    divided = "divided"
    """Every segment gets 1 / K of the advantage."""


class LrDecay(StrEnum):
    """Shape of the learning-rate schedule after the warm-up."""

    constant = "constant"
    linear = "linear"
    """Linear decay to `lr_min_ratio * lr` at the last step."""
    cosine = "cosine"
    """Cosine decay to `lr_min_ratio * lr` at the last step."""


class Proximal(StrEnum):
    """The policy at the center of the trust region, which defines `old_logprobs`."""

    rollout = "rollout"
    """The sampler, by its own log-probabilities. The ratio covers the whole gap, so there is nothing to correct."""
    recomputed = "recomputed"
    """The trainer's weights before the update. Costs an extra forward pass."""
    approximated = "approximated"
    """Log-linear interpolation between the sampler and the current policy, by weight version (AReaL's decoupled PPO).
    Needs no forward pass. The proximal policy of a fresh token is its sampler."""
    current = "current"
    """The current policy without gradient. Every ratio is 1, and only the correction accounts for the sampler."""


class KlPlace(StrEnum):
    """Place where the KL penalty is applied."""

    nowhere = "nowhere"
    reward = "reward"
    """Subtracted from the reward of each token before advantages are computed."""
    loss = "loss"
    """Added to the loss of each token."""


@dataclass(kw_only=True)
class AdvantageConfig(PlugInConfig, base=True):
    """Base config of `algo/advantage`: rewards -> advantage of each token."""

    needs: ClassVar[frozenset[Need]] = frozenset()
    """Scores that the batch must have."""
    needs_critic: ClassVar[bool] = False
    """True if a value network is trained besides the policy."""
    compares_within_group: ClassVar[bool] = False
    """True if a group of one rollout has no advantage."""

    @property
    def greedy_rollouts(self) -> int:
        """Number of rollouts per group that are sampled at temperature 0 and do not train."""
        return 0

    @override
    def build(self) -> Advantage:
        raise NotImplementedError

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        """Yield a problem if groups of one rollout have no advantage."""
        if self.compares_within_group and config.algo.group_size == 1:
            yield Problem(
                "algo.group_size",
                f"1: {type(self).__name__.removesuffix('Config')} compares the rollouts of a group, and a group of 1 has no other.",
                "Set algo.group_size to at least 2, or choose algo/advantage=reinforce_plus_plus or gae.",
            )


@dataclass(kw_only=True)
class LossConfig(PlugInConfig, base=True):
    """Base config of `algo/loss`: log-probabilities and advantages -> loss of each token."""

    needs: ClassVar[frozenset[Need]] = frozenset()
    """Scores that the batch must have."""

    @property
    def trains_without_advantage(self) -> bool:
        """True if a batch with zero advantages still has a gradient."""
        return False

    @property
    def teacher(self) -> str | None:
        """Hugging Face folder of the frozen teacher."""
        return None

    @override
    def build(self) -> TokenLoss:
        raise NotImplementedError


@dataclass(kw_only=True)
class CorrectionConfig(PlugInConfig, base=True):
    """Base config of `algo/correction`: weights for the gap between sampler and proximal policy."""

    corrects: ClassVar[bool] = True
    """False if every weight is 1."""

    proximal: Proximal = Proximal.recomputed
    """The policy that `old_logprobs` come from."""

    @property
    def needs(self) -> frozenset[Need]:
        """Scores that the batch must have."""
        return frozenset({Need.OLD_LOGPROBS} if self.proximal is Proximal.recomputed else ())

    @override
    def build(self) -> Correction:
        raise NotImplementedError

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        """Yield a problem if the sampler is corrected against itself."""
        if self.corrects and self.proximal is Proximal.rollout:
            yield Problem(
                "algo.correction.proximal",
                "rollout: the proximal policy is the sampler itself, so every importance weight is 1.",
                "Set it to recomputed, approximated or current, or choose algo/correction=none.",
            )


@dataclass(kw_only=True)
class KlConfig(PlugInConfig, base=True):
    """Base config of `algo/kl`: penalty for the distance to a reference policy."""

    needs: ClassVar[frozenset[Need]] = frozenset()
    """Scores that the batch must have."""

    @property
    def place(self) -> KlPlace:
        """Place where the penalty is applied."""
        return KlPlace.nowhere

    @property
    def coefficient(self) -> float:
        """Coefficient of the penalty at the first step."""
        return 0.0

    @property
    def reference(self) -> str | None:
        """Hugging Face folder of the frozen reference policy; None: the policy that training started from."""
        return None

    @override
    def build(self) -> Kl:
        raise NotImplementedError


@dataclass(kw_only=True)
class AggregationConfig(PlugInConfig, base=True):
    """Base config of `algo/aggregation`: weight of each token's loss in the loss of the batch."""

    @override
    def build(self) -> Aggregation:
        raise NotImplementedError


@dataclass(kw_only=True)
class ShapingConfig(PlugInConfig, base=True):
    """Base config of `algo/shaping`: additions to the graded rewards, and filters on rollouts."""

    @property
    def drop_zero_variance(self) -> bool:
        """True if groups whose graded rewards are all equal are left out."""
        return False

    @override
    def build(self) -> Shaping:
        raise NotImplementedError


@dataclass(kw_only=True)
class AlgorithmConfig(PlugInConfig):
    """A learning algorithm: its six parts and the options that belong to no part."""

    advantage: AdvantageConfig = MISSING
    """Rewards -> advantage of each token."""
    loss: LossConfig = MISSING
    """Log-probabilities and advantages -> loss of each token."""
    correction: CorrectionConfig = MISSING
    """Weights for the gap between sampler and trainer."""
    kl: KlConfig = MISSING
    """Penalty for the distance to a reference policy."""
    aggregation: AggregationConfig = MISSING
    """Weight of each token's loss in the loss of the batch."""
    shaping: ShapingConfig = MISSING
    """Additions to the graded rewards, and filters on rollouts."""
    lr: float = 1.0e-6
    lr_warmup_steps: int = 0
    """Number of steps over which the learning rate rises linearly."""
    lr_decay: LrDecay = LrDecay.constant
    lr_min_ratio: float = 0.1
    """Final learning rate of the decay, as a fraction of `lr`."""
    epochs: int = 1
    """Passes over each batch, with one optimizer step per minibatch."""
    minibatches: int = 1
    """Number of minibatches (of whole rollouts) per epoch."""
    group_size: int = 8
    """Rollouts per task that are compared with each other."""
    max_staleness: int = 0
    """Maximum number of weight versions that a sampled token may lag behind the trainer."""
    segment_credit: SegmentCredit = SegmentCredit.shared

    @property
    def parts(self) -> tuple[PlugInConfig, ...]:
        """The configs of the six parts."""
        return self.advantage, self.loss, self.correction, self.kl, self.aggregation, self.shaping

    @property
    def needs(self) -> frozenset[Need]:
        """Scores that a batch must have before it can be trained on."""
        return self.advantage.needs | self.loss.needs | self.correction.needs | self.kl.needs

    @property
    def frozen_policies(self) -> int:
        """Number of frozen policies that the trainer must load besides the policy that it trains."""
        return len(self.needs & FROZEN)

    @property
    def trains_without_advantage(self) -> bool:
        """True if a batch with zero advantages still has a gradient."""
        return self.kl.place is KlPlace.loss or self.loss.trains_without_advantage

    def frozen_folder(self, need: Need) -> str | None:
        """Return the Hugging Face folder of the frozen policy that gives a score.

        None stands for the policy that training started from. Raises ConfigError if the teacher is missing.
        """
        if need is Need.REFERENCE_LOGPROBS:
            return self.kl.reference
        if self.loss.teacher is None:
            raise ConfigError("algo.loss.teacher: no teacher is given. Set it to a Hugging Face folder.")
        return self.loss.teacher

    @override
    def build(self) -> Algorithm:
        """Build the parts and check the ranges. Raises ConfigError."""
        from rl_agent.algo.algorithm import Algorithm  # noqa: PLC0415  (imports torch)

        for problem in self._out_of_range():
            raise ConfigError(str(problem))
        return Algorithm(self)

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        """Yield the problems of the algorithm itself and, where something is trained, those of its six parts."""
        yield from self._out_of_range()
        for part in self.parts if config.job.trains else ():
            yield from part.problems(config)

    def _out_of_range(self) -> Iterator[Problem]:
        yield from at_least(
            1, algo__epochs=self.epochs, algo__minibatches=self.minibatches, algo__group_size=self.group_size
        )
        yield from at_least(
            0,
            algo__lr=self.lr,
            algo__lr_warmup_steps=self.lr_warmup_steps,
            algo__lr_min_ratio=self.lr_min_ratio,
            algo__max_staleness=self.max_staleness,
        )

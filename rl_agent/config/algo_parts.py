"""The schemas of conf/algo/correction, conf/algo/kl and conf/algo/shaping."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Proximal(StrEnum):
    """The policy that the trust region is around: what `old_logprobs` are."""

    rollout = "rollout"
    """The sampler itself, by its own log-probabilities: ratios then hold the whole gap, and there is nothing to correct."""
    recomputed = "recomputed"
    """The trainer's weights before the update, by a forward pass of their own."""
    approximated = "approximated"
    """The same without that pass: between the sampler and the current policy in the log, at the place that the weight versions
    say (AReaL's decoupled PPO). For sampled tokens that are stale; a fresh one's proximal policy is its sampler."""
    current = "current"
    """The current policy, without gradient: every ratio is 1, and only the correction knows of the sampler."""


class WeightLevel(StrEnum):
    """Over what an importance weight is taken."""

    token = "token"  # noqa: S105  as in text
    sequence = "sequence"
    """The product over a sequence's tokens."""
    geometric = "geometric"
    """Its geometric mean."""


class KlEstimator(StrEnum):
    """Estimators of a divergence from one sample, r = log(reference / policy)."""

    k1 = "k1"
    """-r: unbiased, of any sign; its gradient in a loss is zero in the mean, so use it in the reward."""
    k2 = "k2"
    """r^2 / 2: biased, small variance; its gradient in a loss is that of the divergence."""
    k3 = "k3"
    """e^r - r - 1: unbiased, never negative."""
    absolute = "absolute"
    """|r|."""


class Gathered(StrEnum):
    """What of a sequence is compared with the bounds of a rejection."""

    token = "token"  # noqa: S105  as in text
    """Each token by itself."""
    sum = "sum"
    """The sum over the sequence's tokens rejects them all."""
    mean = "mean"
    """Their mean; of k1, this is the geometric criterion."""
    max = "max"
    """Their largest."""


class KlPlace(StrEnum):
    """Where a penalty is put."""

    nowhere = "nowhere"
    reward = "reward"
    """Taken off the reward of each token before advantages."""
    loss = "loss"
    """Added to the loss of each token."""


@dataclass(slots=True, kw_only=True)
class NoCorrectionConfig:
    """Every token counts fully."""

    _target_: str = "rl_agent.algo.correction.none.NoCorrection"
    proximal: Proximal = Proximal.rollout


@dataclass(slots=True, kw_only=True)
class TruncatedConfig:
    """Truncated importance sampling (TIS): weights, capped."""

    _target_: str = "rl_agent.algo.correction.truncated.Truncated"
    proximal: Proximal = Proximal.recomputed
    level: WeightLevel = WeightLevel.token
    low: float = 0.0
    """Smallest weight."""
    high: float = 2.0
    """Largest weight."""


@dataclass(slots=True, kw_only=True)
class IcePopConfig:
    """Weights within bounds; tokens beyond them are rejected."""

    _target_: str = "rl_agent.algo.correction.icepop.IcePop"
    proximal: Proximal = Proximal.recomputed
    low: float = 0.5
    high: float = 5.0


@dataclass(slots=True, kw_only=True)
class MaskedConfig:
    """Masked importance sampling: whole sequences beyond bounds are rejected, tokens of the others are weighted."""

    _target_: str = "rl_agent.algo.correction.masked.Masked"
    proximal: Proximal = Proximal.recomputed
    level: WeightLevel = WeightLevel.geometric
    low: float = 0.999
    high: float = 1.002
    weighted: bool = True
    """Weigh the tokens that are kept; false: they count fully."""


@dataclass(slots=True, kw_only=True)
class RejectionConfig:
    """Tokens or sequences are rejected by an estimate of the divergence."""

    _target_: str = "rl_agent.algo.correction.rejection.Rejection"
    proximal: Proximal = Proximal.recomputed
    estimator: KlEstimator = KlEstimator.k3
    gathered: Gathered = Gathered.token
    low: float | None = None
    """Smallest estimate that is kept (of k1; the others are not negative); null: any."""
    high: float | None = 0.1
    """Largest estimate that is kept; null: any."""
    weighted: bool = False
    """Weigh the tokens that are kept."""


@dataclass(slots=True, kw_only=True)
class DecoupledConfig:
    """Decoupled PPO: sampler, proximal and current policy are three; weights lead from the first to the second."""

    _target_: str = "rl_agent.algo.correction.decoupled.Decoupled"
    proximal: Proximal = Proximal.recomputed
    """`approximated` saves the forward pass."""
    cap: float | None = 5.0
    """A token with a larger weight is rejected; null: none is."""


@dataclass(slots=True, kw_only=True)
class NoKlConfig:
    """No penalty, and no reference policy in memory."""

    _target_: str = "rl_agent.algo.kl.none.NoKl"


@dataclass(slots=True, kw_only=True)
class KlPenaltyConfig:
    """A penalty for leaving a frozen reference policy."""

    _target_: str = "rl_agent.algo.kl.penalty.KlPenalty"
    place: KlPlace = KlPlace.loss
    estimator: KlEstimator = KlEstimator.k3
    coefficient: float = 1.0e-3
    input_clamp: float | None = 20.0
    """Bound on |log-ratio|; null: only the one that keeps numbers finite (20)."""
    output_clamp: float | None = 10.0
    """Bound on |estimate|; null: none."""
    importance_weighted: bool = False
    """In the loss: weigh each token by current / sampler, which makes the estimate one of the current policy."""
    target: float | None = None
    """Divergence a token at which the coefficient is to settle; null: it stays."""
    horizon: int = 10_000
    """Rollouts in which the coefficient adapts."""
    reference: str | None = None
    """The reference's Hugging Face folder; null: the policy that training started from."""


@dataclass(slots=True, kw_only=True)
class ShapingConfig:
    """Everything is off at its default. Amounts are in units of reward."""

    _target_: str = "rl_agent.algo.shaping.shaping.RewardShaping"
    overlong_penalty: float = 0.0
    """Taken off a rollout whose longest segment reaches `overlong_limit`; it grows in a straight line over the buffer."""
    overlong_buffer: float = 0.2
    """The last part of the limit, as a share of it, in which the penalty grows."""
    overlong_limit: int = 20480
    """Tokens of a segment, prompts included."""
    drop_truncated: bool = False
    """Leave out rollouts that a limit on tokens, turns or time cut short."""
    length_weight: float = 0.0
    """Of the length reward: +0.5 for the group's shortest rollout to -0.5 for its longest; a failure never gains."""
    success: float = 1.0
    """The least reward of a success, for the length reward."""
    format_penalty: float = 0.0
    """Taken off for replies whose tool call could not be read, times their share."""
    tool_error_penalty: float = 0.0
    """Taken off for tool calls that ended in an error, times their share."""
    drop_zero_variance: bool = False
    """Leave out groups whose graded rewards are all equal."""


CORRECTION_SCHEMAS: Final = {
    "none": NoCorrectionConfig,
    "truncated": TruncatedConfig,
    "icepop": IcePopConfig,
    "masked": MaskedConfig,
    "rejection": RejectionConfig,
    "decoupled": DecoupledConfig,
}
"""Schemas of conf/algo/correction/*.yaml."""

KL_SCHEMAS: Final = {"none": NoKlConfig, "penalty": KlPenaltyConfig}
"""Schemas of conf/algo/kl/*.yaml."""

SHAPING_SCHEMAS: Final = {"shaping": ShapingConfig}
"""Schemas of conf/algo/shaping/*.yaml."""

"""The schema of conf/algo/loss."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class RatioLevel(StrEnum):
    """Where GSPO's ratio is taken and clipped."""

    sequence = "sequence"
    """One ratio a segment."""
    token = "token"  # noqa: S105  as in text
    """The same ratio, whose gradient goes through each token alone (GSPO-token)."""


class Divergence(StrEnum):
    """How DPPO measures how far a token's probability has moved."""

    tv = "tv"
    """Total variation of "this token or another": |p - q|."""
    kl = "kl"
    """Kullback-Leibler divergence of "this token or another"."""


@dataclass(slots=True, kw_only=True)
class PpoClipLossConfig:
    """PPO's clipped surrogate."""

    _target_: str = "rl_agent.algo.loss.ppo_clip.PpoClipLoss"
    clip_low: float = 0.2
    """Distance below 1 at which the ratio is clipped."""
    clip_high: float = 0.28
    """Distance above 1 at which the ratio is clipped."""


@dataclass(slots=True, kw_only=True)
class DualClipLossConfig:
    """PPO's clipped surrogate, bounded for bad tokens too."""

    _target_: str = "rl_agent.algo.loss.dual_clip.DualClipLoss"
    clip_low: float = 0.2
    """As in loss=ppo_clip."""
    clip_high: float = 0.2
    """As in loss=ppo_clip."""
    clip_bad: float = 3.0
    """Largest ratio of a token with a negative advantage; above 1."""


@dataclass(slots=True, kw_only=True)
class GspoLossConfig:
    """PPO's surrogate with one ratio a sequence, its tokens' geometric mean."""

    _target_: str = "rl_agent.algo.loss.gspo.GspoLoss"
    clip_low: float = 3.0e-4
    """Distance below 1 at which the sequence's ratio is clipped."""
    clip_high: float = 4.0e-4
    """Distance above 1 at which it is clipped."""
    level: RatioLevel = RatioLevel.sequence


@dataclass(slots=True, kw_only=True)
class CispoLossConfig:
    """REINFORCE weighted by a clipped ratio that carries no gradient."""

    _target_: str = "rl_agent.algo.loss.cispo.CispoLoss"
    clip_low: float = 1.0
    """Distance below 1; 1: no lower bound."""
    clip_high: float = 4.0
    """Distance above 1."""


@dataclass(slots=True, kw_only=True)
class SapoLossConfig:
    """A soft gate instead of a clip."""

    _target_: str = "rl_agent.algo.loss.sapo.SapoLoss"
    tau_good: float = 1.0
    """Steepness of the gate for positive advantages."""
    tau_bad: float = 1.05
    """For the others; steeper, since they push probability to tokens that nobody sampled."""


@dataclass(slots=True, kw_only=True)
class DppoLossConfig:
    """Tokens whose probability has moved too far, and would move further, are dropped."""

    _target_: str = "rl_agent.algo.loss.dppo.DppoLoss"
    divergence: Divergence = Divergence.tv
    limit_low: float = 0.15
    """Largest divergence of a token whose probability fell."""
    limit_high: float = 0.15
    """Of one whose probability rose."""
    tau: float = 0.0
    """Weight of the squared log-ratio, which pulls every token back."""


@dataclass(slots=True, kw_only=True)
class ClipCovLossConfig:
    """PPO's clip; a few tokens of high covariance give no gradient."""

    _target_: str = "rl_agent.algo.loss.clip_cov.ClipCovLoss"
    clip_low: float = 0.2
    """As in loss=ppo_clip."""
    clip_high: float = 0.2
    """As in loss=ppo_clip."""
    share: float = 2.0e-4
    """Share of the trained tokens that is dropped."""
    covariance_low: float = 1.0
    """Only tokens whose covariance is above this."""
    covariance_high: float = 5.0
    """And below this."""


@dataclass(slots=True, kw_only=True)
class KlCovLossConfig:
    """Importance-weighted policy gradient; the tokens of highest covariance pay for leaving the old policy."""

    _target_: str = "rl_agent.algo.loss.kl_cov.KlCovLoss"
    share: float = 2.0e-3
    """Share of the trained tokens that pays."""
    coefficient: float = 1.0
    """Of |log ratio|."""


@dataclass(slots=True, kw_only=True)
class GeometricMeanLossConfig:
    """GMPO: the geometric mean of clipped token ratios."""

    _target_: str = "rl_agent.algo.loss.geometric_mean.GeometricMeanLoss"
    clip_low: float = 0.4
    """Lower bound of a token's *log* ratio, negated."""
    clip_high: float = 0.4
    """Upper bound of a token's *log* ratio."""


@dataclass(slots=True, kw_only=True)
class ReinforceLossConfig:
    """Plain policy gradient."""

    _target_: str = "rl_agent.algo.loss.reinforce.ReinforceLoss"


@dataclass(slots=True, kw_only=True)
class DroLossConfig:
    """Direct reward optimisation: policy gradient with a squared pull to the old policy."""

    _target_: str = "rl_agent.algo.loss.dro.DroLoss"
    beta: float = 0.05
    """Weight of the pull."""


@dataclass(slots=True, kw_only=True)
class SftLossConfig:
    """Negative log-likelihood."""

    _target_: str = "rl_agent.algo.loss.sft.SftLoss"


@dataclass(slots=True, kw_only=True)
class DistillationLossConfig:
    """On-policy distillation: the reverse KL divergence to a teacher, token by token."""

    _target_: str = "rl_agent.algo.loss.distillation.DistillationLoss"
    teacher: str | None = None
    """The teacher's Hugging Face folder; it must have the policy's vocabulary."""
    coefficient: float = 1.0
    """Of the teacher's log-probability minus the policy's."""
    reward_weight: float = 0.0
    """Of the advantage besides; 0: learn from the teacher alone."""


LOSS_SCHEMAS: Final = {
    "ppo_clip": PpoClipLossConfig,
    "dual_clip": DualClipLossConfig,
    "gspo": GspoLossConfig,
    "cispo": CispoLossConfig,
    "sapo": SapoLossConfig,
    "dppo": DppoLossConfig,
    "clip_cov": ClipCovLossConfig,
    "kl_cov": KlCovLossConfig,
    "geometric_mean": GeometricMeanLossConfig,
    "reinforce": ReinforceLossConfig,
    "dro": DroLossConfig,
    "sft": SftLossConfig,
    "distillation": DistillationLossConfig,
}
"""Schemas of conf/algo/loss/*.yaml."""

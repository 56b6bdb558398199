"""On-policy distillation: the policy's own tokens, graded one by one by a teacher (arXiv 2306.13649; 2306.08543).

    a_t = coefficient * stop(log p_teacher - log p) + reward_weight * A_t
    loss = -a_t * r_t

The gradient of the reverse KL divergence KL(policy || teacher) at the sampled tokens, importance-weighted. Worked: log p = old = -2,
teacher -1: a = 1, loss -1, gradient -1. Where the two agree there is nothing to learn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rl_agent.algo.base import LossTerms
from rl_agent.algo.ratio import log_ratio
from rl_agent.algo.scores import Need
from rl_agent.errors import LawError

if TYPE_CHECKING:
    from rl_agent.algo.base import LossInput


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillationLoss:
    """See `DistillationLossConfig`."""

    teacher: str | None
    coefficient: float
    reward_weight: float

    @property
    def needs(self) -> frozenset[Need]:
        """The teacher's log-probabilities."""
        return frozenset({Need.TEACHER_LOGPROBS})

    @property
    def trains_without_advantage(self) -> bool:
        """The teacher grades every token."""
        return True

    def __call__(self, inputs: LossInput) -> LossTerms:
        """`teacher_kl`: log p - log p_teacher, whose mean over the policy's samples is the reverse KL divergence."""
        if inputs.teacher_logprobs is None:
            raise LawError("algo/loss=distillation got no log-probabilities of a teacher")
        gap = log_ratio(inputs.teacher_logprobs, inputs.logprobs.detach())
        graded = self.coefficient * gap + self.reward_weight * inputs.advantages
        ratio = log_ratio(inputs.logprobs, inputs.old_logprobs).exp()
        return LossTerms(loss=-graded * ratio, metrics={"ratio": ratio.detach(), "teacher_kl": -gap})

"""On-policy distillation: a teacher grades the policy's own tokens one by one (arXiv 2306.13649; 2306.08543).

    a_t = coefficient * stop(log p_teacher - log p) + reward_weight * A_t
    loss = -a_t * r_t

The gradient of the reverse KL divergence KL(policy || teacher) at the sampled tokens, importance-weighted. Worked: log p = old = -2,
teacher -1: a = 1, loss -1, gradient -1. Where the two agree the gradient is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from rl_agent.algo.base import LossTerms
from rl_agent.algo.ratio import log_ratio
from rl_agent.config.algo import LossConfig, Need
from rl_agent.config.plug_in import Problem
from rl_agent.errors import LawError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.algo.base import LossInput
    from rl_agent.config.schema import Config


@dataclass(kw_only=True)
class DistillationConfig(LossConfig):
    """On-policy distillation: the reverse KL divergence to a teacher, token by token."""

    needs = frozenset({Need.TEACHER_LOGPROBS})

    teacher: str | None = None
    """Hugging Face folder of the teacher, which must have the policy's vocabulary."""
    coefficient: float = 1.0
    """Coefficient of the teacher's log-probability minus the policy's."""
    reward_weight: float = 0.0
    """Coefficient of the advantage; 0: learn from the teacher alone."""

    @property
    @override
    def trains_without_advantage(self) -> bool:
        """True: the teacher grades every token."""
        return True

    @override
    def problems(self, config: Config) -> Iterator[Problem]:
        """Yield a problem if there is no teacher."""
        if self.teacher is None:
            yield Problem("algo.loss.teacher", "no teacher is given.", "Set it to a Hugging Face folder.")

    @override
    def build(self) -> Distillation:
        return Distillation(self)


class Distillation:
    """See `DistillationConfig`."""

    def __init__(self, config: DistillationConfig) -> None:
        self.config = config

    def __call__(self, inputs: LossInput) -> LossTerms:
        """Return the loss of each token. `teacher_kl`: log p - log p_teacher, whose mean is the reverse KL divergence."""
        if inputs.teacher_logprobs is None:
            raise LawError("algo/loss=distillation: the batch has no log-probabilities of a teacher")
        gap = log_ratio(inputs.teacher_logprobs, inputs.logprobs)
        graded = self.config.coefficient * gap + self.config.reward_weight * inputs.advantages
        ratio = log_ratio(inputs.logprobs, inputs.old_logprobs).exp()
        return LossTerms(loss=-graded * ratio, metrics={"ratio": ratio.detach(), "teacher_kl": -gap})

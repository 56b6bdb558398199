"""No penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from rl_agent.config.algo import KlConfig

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True)
class NoKlConfig(KlConfig):
    """No penalty, and no reference policy in memory."""

    @override
    def build(self) -> NoKl:
        return NoKl(self)


class NoKl:
    """See `NoKlConfig`."""

    def __init__(self, config: NoKlConfig) -> None:
        self.config = config

    def __call__(self, logprobs: Tensor, reference: Tensor, rollout_logprobs: Tensor | None) -> Tensor:
        """Return zeros: [t]."""
        return logprobs.new_zeros(len(logprobs))

    def next_coefficient(self, coefficient: float, measured: float, rollouts: int) -> float:
        """Return the coefficient unchanged."""
        return coefficient

"""No penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rl_agent.config.algo_parts import KlPlace

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class NoKl:
    """See `NoKlConfig`."""

    @property
    def place(self) -> KlPlace:
        """Nowhere."""
        return KlPlace.nowhere

    @property
    def coefficient(self) -> float:
        """Zero."""
        return 0.0

    def __call__(self, logprobs: Tensor, _reference: Tensor, _rollout_logprobs: Tensor | None) -> Tensor:
        """[t] zeros."""
        return torch.zeros_like(logprobs)

    def next_coefficient(self, coefficient: float, _measured: float, _rollouts: int) -> float:
        """The same."""
        return coefficient

"""Scores of a batch: log-probabilities under other policies and values of the critic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rl_agent.errors import LawError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from rl_agent.config.algo import Need

    Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Scores of the tokens, [T] float32 each, aligned with `TrainBatch.tokens`. 0 for first tokens of segments; None if not computed."""

    old_logprobs: Float32 | None = None
    reference_logprobs: Float32 | None = None
    teacher_logprobs: Float32 | None = None
    values: Float32 | None = None
    """Value of the state *before* token t is chosen, in units of reward."""

    def get(self, need: Need) -> Float32:
        """Return the score. Raises LawError if the batch does not have it: missing is not zero."""
        found: Float32 | None = getattr(self, need.value)
        if found is None:
            raise LawError(f"the batch was not scored with {need.value}. Call Trainer.score first.")
        return found

    def lacking(self, needs: frozenset[Need]) -> frozenset[Need]:
        """Return those of `needs` that are missing."""
        return frozenset(need for need in needs if getattr(self, need.value) is None)

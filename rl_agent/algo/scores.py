"""What a batch must be scored with before it can be trained on, and the scores themselves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from rl_agent.errors import LawError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Float32 = npt.NDArray[np.float32]


class Need(StrEnum):
    """A score that a part of an algorithm asks for; the values are the fields of `Scores`."""

    OLD_LOGPROBS = "old_logprobs"
    """Of the trainer's own weights before the first update."""
    REFERENCE_LOGPROBS = "reference_logprobs"
    """Of a frozen reference policy."""
    TEACHER_LOGPROBS = "teacher_logprobs"
    """Of a frozen teacher."""
    VALUES = "values"
    """Of the critic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """[T] float32 each, aligned with `TrainBatch.tokens`; 0 for first tokens of segments; None where it was not asked for."""

    old_logprobs: Float32 | None = None
    reference_logprobs: Float32 | None = None
    teacher_logprobs: Float32 | None = None
    values: Float32 | None = None
    """The value of the state *before* token t is chosen, in units of reward."""

    def get(self, need: Need) -> Float32:
        """The score. Raises LawError when the batch was not scored with it: missing is not zero."""
        found: Float32 | None = getattr(self, need.value)
        if found is None:
            raise LawError(f"the batch was not scored with {need.value}; Trainer.score gives it")
        return found

    def lacking(self, needs: frozenset[Need]) -> frozenset[Need]:
        """Those of `needs` that are not there."""
        return frozenset(need for need in needs if getattr(self, need.value) is None)

"""A grader that judges as usual and gives a solved task less reward if the patch is long."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rl_agent.graders.auto import Auto, AutoConfig
from rl_agent.graders.base import VerdictStatus

if TYPE_CHECKING:
    from rl_agent.graders.base import Verdict
    from rl_agent.sandboxes.base import SandboxProvider
    from rl_agent.tasks.task import Task


@dataclass(kw_only=True)
class SmallPatchConfig(AutoConfig):
    """The usual grading, with a price on length."""

    free_lines: int = 10
    """Lines of a patch, context included, that cost nothing."""
    price: float = 0.01
    """Reward taken for each further line; half of the reward at most."""

    def build(self) -> SmallPatch:
        """Return the grader."""
        return SmallPatch(self)


class SmallPatch:
    """See the module."""

    def __init__(self, config: SmallPatchConfig) -> None:
        self._config = config
        self._inner = Auto(config)

    async def grade(self, task: Task, patch: bytes, provider: SandboxProvider, *, even_empty: bool = False) -> Verdict:
        """Judge a patch. See `rl_agent.graders.base.Grader`."""
        verdict = await self._inner.grade(task, patch, provider, even_empty=even_empty)
        if verdict.status is not VerdictStatus.SOLVED or verdict.reward is None:
            return verdict
        extra = max(0, patch.count(b"\n") - self._config.free_lines)
        price = min(extra * self._config.price, verdict.reward / 2)
        return replace(verdict, reward=verdict.reward - price, metadata={**verdict.metadata, "extra_lines": extra})

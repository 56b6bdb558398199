"""Groups with nothing to compare: dynamic sampling puts other tasks in their place (DAPO, arXiv 2503.14476, section 3.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rl_agent.rollout.group import Rollout

REASON = "zero_variance"


def dropped_groups(algo: Any) -> Callable[[Sequence[Rollout]], str | None]:
    """Why a complete group will not train under `algo`; the function says None for a group that does.

    As in `algo.shaping`, it is the graded rewards that count. A group without any reward is no evidence: it stays.
    """
    if not getattr(algo.shaping, "drop_zero_variance", False):
        return lambda _: None

    def drop(rollouts: Sequence[Rollout]) -> str | None:
        rewards = {rollout.reward for rollout in rollouts if rollout.reward is not None and not rollout.greedy}
        return REASON if len(rewards) == 1 else None

    return drop

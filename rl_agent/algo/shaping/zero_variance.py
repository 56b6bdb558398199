"""The filter of dynamic sampling: groups whose rewards are all equal have nothing to compare (DAPO, arXiv 2503.14476, section 3.2).

Left in, they give no gradient but count in the denominators of the loss. Worked: rewards 1, 1 | 1, 0 | 0 of three groups: only the
second is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_agent.algo.advantage.groups import says_nothing

if TYPE_CHECKING:
    from rl_agent.algo.batch import Bool, Float32, Int32


def has_variance(rewards: Float32, groups: Int32) -> Bool:
    """[R] float32, [R] int32 -> [R] bool: the rollout's group has two different rewards."""
    return ~says_nothing(rewards, groups)

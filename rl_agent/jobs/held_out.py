"""How good the policy is on the held-out set, exactly: no sampling, so no sampling noise.

For a task whose right answer is known, the probability of the right trajectory is the product of the teacher-forced
probabilities of the tokens that the policy would sample in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rl_agent.embedded.agent_style import agent_style
from rl_agent.embedded.demonstration import Demonstrations, encoder
from rl_agent.embedded.tiny import TinyPolicy
from rl_agent.embedded.toy import ToyTasks, held_out_tasks
from rl_agent.tokens.template_renderer import TemplateRenderer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rl_agent.cluster.bring_up import Trainers
    from rl_agent.embedded.demonstration import Demonstration
    from rl_agent.embedded.toy import ToyTask


class HeldOut:
    """The held-out set as trajectories: for each task the right one, and those with a plausible mistake."""

    def __init__(self, tasks: Sequence[ToyTask], demonstrations: Demonstrations) -> None:
        self._right = [demonstrations.make(task, task.right) for task in tasks]
        self._wrong = [
            [
                demonstrations.make(task, expression)
                for expression in dict.fromkeys(task.wrong)
                if expression != task.right
            ]
            for task in tasks
        ]

    async def p_right(self, trainers: Trainers) -> float:
        """Mean probability of the right trajectory: the metric `eval/p_right`."""
        return float(np.mean(await _probabilities(trainers, self._right)))

    async def p_listed(self, trainers: Trainers) -> float:
        """Mean probability of the right trajectory or one with a listed mistake: a lower bound of acting validly."""
        flat = [demonstration for wrong in self._wrong for demonstration in wrong]
        listed = (await _probabilities(trainers, flat)).sum() / len(self._right)
        return float(listed) + await self.p_right(trainers)


def held_out(model: object, source: object, folder: Path) -> HeldOut | None:
    """The held-out set, for toy tasks and the tiny policy; None for anything whose right answer is not known."""
    if not isinstance(model, TinyPolicy) or not isinstance(source, ToyTasks):
        return None
    demonstrations = Demonstrations(agent_style(model.style), TemplateRenderer(folder), encoder(folder))
    return HeldOut(held_out_tasks(source.kinds), demonstrations)


async def _probabilities(trainers: Trainers, demonstrations: Sequence[Demonstration]) -> np.ndarray:
    scores = await trainers.logprobs([demonstration.tokens for demonstration in demonstrations])
    return np.array(
        [
            np.exp(score[demonstration.sampled[1:]].sum())
            for score, demonstration in zip(scores, demonstrations, strict=True)
        ]
    )

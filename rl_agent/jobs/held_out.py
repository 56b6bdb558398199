"""Exact measure of the policy on the held-out set, without sampling noise.

If the right answer of a task is known, the probability of its trajectory is the product of the teacher-forced
probabilities of the tokens that the policy samples in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rl_agent.cluster.bring_up import Trainers
    from rl_agent.config.schema import Config
    from rl_agent.tasks.source import Demonstration, KnownAnswers


class HeldOut:
    """Trajectories of the held-out set: for each task the right one, and some with a plausible mistake."""

    def __init__(self, answers: Sequence[KnownAnswers]) -> None:
        self._right = [answer.right for answer in answers]
        self._wrong = [mistake for answer in answers for mistake in answer.wrong]

    async def p_right(self, trainers: Trainers) -> float:
        """Return the mean probability of the right trajectory: the metric `eval/p_right`."""
        return float(np.mean(await _probabilities(trainers, self._right)))

    async def p_listed(self, trainers: Trainers) -> float:
        """Return the mean probability of the right trajectory or a listed mistake: a lower bound for valid behavior."""
        listed = (await _probabilities(trainers, self._wrong)).sum() / len(self._right)
        return float(listed) + await self.p_right(trainers)


def held_out(config: Config, model_folder: Path) -> HeldOut | None:
    """Return the held-out set, or None for tasks whose right answers are unknown."""
    demonstrator = config.data.build_demonstrator()
    return None if demonstrator is None else HeldOut(demonstrator.held_out(model_folder))


async def _probabilities(trainers: Trainers, demonstrations: Sequence[Demonstration]) -> np.ndarray:
    scores = await trainers.logprobs([demonstration.tokens for demonstration in demonstrations])
    return np.array(
        [
            np.exp(score[demonstration.sampled[1:]].sum())
            for score, demonstration in zip(scores, demonstrations, strict=True)
        ]
    )

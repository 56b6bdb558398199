"""What a weight push in the middle of a turn does is counted where it happens, and told with the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rl_agent.adapters.generate import Parts, generate_whole
from rl_agent.adapters.record import SessionStats
from rl_agent.rollout.group import Group, Rollout
from rl_agent.rollout.metrics import rollout_metrics
from rl_agent.tasks.task import EvalCmdSpec, Task
from rl_agent.tokens.turn import FinishReason, Generation, Sampling, VersionSpan

if TYPE_CHECKING:
    from rl_agent.tokens.turn import Int32


class Interrupted:
    """Ends the first request after three tokens of version 4; goes on with version 5, all but 16 tokens of the prompt anew."""

    def __init__(self) -> None:
        self.prompts: list[list[int]] = []

    async def generate(self, tokens: Int32, sampling: Sampling, *, request_id: str, priority: int = 0) -> Generation:
        self.prompts.append(tokens.tolist())
        first = len(self.prompts) == 1
        count = 3 if first else 2
        return Generation(
            tokens=np.arange(count, dtype=np.int32),
            logprobs=np.full(count, -1.0, dtype=np.float32),
            finish_reason=FinishReason.ABORT if first else FinishReason.STOP,
            spans=(VersionSpan(version=4 if first else 5, start=0, end=count),),
            cached_tokens=0 if first else 16,
        )


async def test_a_turn_that_is_asked_for_again_is_one_turn_with_both_versions_and_its_recomputed_tokens() -> None:
    parts, engine = Parts(), Interrupted()
    prompt = np.arange(100, 140, dtype=np.int32)
    whole = await generate_whole(engine, prompt, Sampling(max_tokens=50), request_id="s-t", parts=parts)
    assert engine.prompts[1] == [*prompt.tolist(), 0, 1, 2]
    assert whole.tokens.tolist() == [0, 1, 2, 0, 1]
    assert whole.weight_versions().tolist() == [4, 4, 4, 5, 5]
    assert parts.recomputed == 43 - 16


def test_the_step_tells_the_share_of_tokens_in_mixed_turns_and_what_was_computed_again() -> None:
    task = Task(task_id="t", problem_statement="", image="host", workdir="/w", grader=EvalCmdSpec(eval_cmd="true"))
    rollouts = tuple(
        Rollout(
            rollout_id=f"r{n}",
            group_id="g",
            task_id="t",
            attempt=0,
            verdict=None,
            sampled_tokens=100,
            stats=SessionStats(mixed_version_tokens=mixed, recomputed_tokens=again),
        )
        for n, (mixed, again) in enumerate([(0, 0), (30, 700)])
    )
    metrics = rollout_metrics([Group(group_id="g", task=task, rollouts=rollouts)], 5)
    assert metrics["tokens/mixed_version_share"] == 30 / 200
    assert metrics["tokens/recomputed"] == 700

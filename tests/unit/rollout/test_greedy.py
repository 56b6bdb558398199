"""Greedy baselines: who is one, and that it never trains."""

from __future__ import annotations

from typing import Any

import numpy as np

from rl_agent.adapters.record import SessionStats
from rl_agent.algo.advantage.grpo import GrpoConfig
from rl_agent.algo.advantage.remax import RemaxConfig
from rl_agent.config.algo import AlgorithmConfig
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.harnesses.base import ExitReason
from rl_agent.rollout.algo_requirements import with_greedy_baselines
from rl_agent.rollout.batch import build_batch
from rl_agent.rollout.group import EpisodeRequest, Group, Rollout, Slot
from rl_agent.rollout.metrics import rollout_metrics
from rl_agent.tokens.segment import Segment, SegmentKind

TASK: Any = None


async def test_the_last_of_each_group_are_greedy_and_only_where_the_algorithm_asks() -> None:
    asked = []

    async def run(request: EpisodeRequest) -> Any:
        asked.append(request.greedy)

    remax = AlgorithmConfig(advantage=RemaxConfig(), group_size=3)
    wrapped = with_greedy_baselines(run, remax)
    for member in range(3):
        await wrapped(EpisodeRequest(task=TASK, slot=Slot(position=4, member=member)))
    assert asked == [False, False, True]
    assert with_greedy_baselines(run, AlgorithmConfig(advantage=GrpoConfig())) is run


def rollout(number: int, reward: float, *, greedy: bool = False, **changes: Any) -> Rollout:
    mask = np.array([False, True, True])
    segment = Segment(
        kind=SegmentKind.MAIN,
        tokens=np.arange(3, dtype=np.int32),
        loss_mask=mask,
        rollout_logprobs=np.where(mask, -1, 0).astype(np.float32),
        weight_versions=np.where(mask, 0, -1).astype(np.int32),
    )
    values: dict[str, Any] = {
        "rollout_id": f"r{number}",
        "group_id": "g",
        "task_id": "t",
        "attempt": 0,
        "verdict": Verdict(status=VerdictStatus.FAILED, reward=reward),
        "segments": (segment,),
        "sampled_tokens": 2,
        "turns": ("a", "b"),
        "stats": SessionStats(tool_calls=4, tool_errors=1, ill_formed=2),
        "greedy": greedy,
    }
    return Rollout(**(values | changes))


def test_a_greedy_rollout_is_a_baseline_and_its_tokens_are_excluded_for_a_named_reason() -> None:
    group = Group(group_id="g", task=TASK, rollouts=(rollout(0, 1), rollout(1, 0), rollout(2, 1, greedy=True)))
    batch = build_batch([group])
    assert batch is not None
    assert batch.loss_mask.tolist() == [False, True, True, False, True, True, False, False, False]
    assert RemaxConfig().build()(batch).tolist() == [0] * 3 + [-1] * 3 + [0] * 3
    metrics = rollout_metrics([group], 0)
    assert metrics["tokens/trained"] == 4
    assert metrics["tokens/excluded/greedy_baseline"] == 2


def test_a_batch_knows_how_its_rollouts_went_or_says_that_it_does_not() -> None:
    late = rollout(1, 0, exit_reason=str(ExitReason.TIME_BUDGET))
    cut = rollout(2, 0, stats=SessionStats(truncated=1))
    batch = build_batch([Group(group_id="g", task=TASK, rollouts=(rollout(0, 1), late, cut))])
    assert batch is not None
    assert batch.facts is not None
    assert batch.facts.truncated.tolist() == [False, True, True]
    assert batch.facts.turns.tolist() == [2, 2, 2]
    assert batch.facts.tool_errors.tolist() == [1, 1, 0]
    assert batch.facts.ill_formed.tolist() == [2, 2, 0]
    silent = build_batch([Group(group_id="g", task=TASK, rollouts=(rollout(0, 1), rollout(1, 0, stats=None)))])
    assert silent is not None
    assert silent.facts is None

"""Sampling jobs: every rollout once, infrastructure tried again, nothing run twice after a kill, records as in training."""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rl_agent.config.rollout import FailuresConfig
from rl_agent.embedded.toy_source import ToyDataConfig
from rl_agent.errors import ConfigError, InfraError
from rl_agent.graders.base import Verdict, VerdictStatus
from rl_agent.jobs.sampling import SamplingLoop
from rl_agent.jobs.sampling_records import SamplingPlan, SamplingRecords, tasks_of
from rl_agent.jobs.tally import tally, totals
from rl_agent.rollout import records
from rl_agent.rollout.failures import FailurePolicy
from rl_agent.rollout.group import AbortReason, Rollout, Slot
from rl_agent.tokens.segment import NOT_SAMPLED, Segment, SegmentKind
from tests.unit.config.test_composition import composed

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.rollout.group import EpisodeRequest, Group

PLAN = SamplingPlan(tasks=5, members=2, per_file=2)


def rollout_of(request: EpisodeRequest, **changes: object) -> Rollout:
    segment = Segment(
        kind=SegmentKind.MAIN,
        tokens=np.array([1, 2, 3], dtype=np.int32),
        loss_mask=np.array([False, True, True]),
        rollout_logprobs=np.array([0, -1, -1], dtype=np.float32),
        weight_versions=np.array([NOT_SAMPLED, 0, 0], dtype=np.int32),
    )
    made = Rollout(
        rollout_id=request.rollout_id,
        group_id=request.group_id,
        task_id=request.task.task_id,
        attempt=request.attempt,
        verdict=Verdict(status=VerdictStatus.SOLVED, reward=1.0),
        segments=(segment,),
        sampled_tokens=2,
        turns=("fix",),
        seconds={"total": 1.0},
        greedy=request.greedy,
    )
    return replace(made, **changes)


class Agent:
    """Plays the cluster: notes what it is asked, and fails where it is told to."""

    def __init__(self, failing: dict[str, int] | None = None, stop_after: int | None = None) -> None:
        self.asked: list[str] = []
        self._failing = dict(failing or {})
        self._stop_after = stop_after

    async def run(self, request: EpisodeRequest) -> Rollout:
        if self._stop_after is not None and len(self.asked) >= self._stop_after:
            raise InfraError("killed")
        self.asked.append(request.rollout_id)
        await asyncio.sleep(0)
        if self._failing.get(request.rollout_id, 0) > 0:
            self._failing[request.rollout_id] -= 1
            return rollout_of(request, verdict=None, abort=AbortReason.SANDBOX_ERROR, segments=())
        return rollout_of(request)


async def sampled(
    folder: Path, agent: Agent, *, plan: SamplingPlan = PLAN, retries: int = 2, greedy: bool = False
) -> list[tuple[int, list[Group]]]:
    kept = SamplingRecords(folder, folder / "buffer", plan)
    kept.load()
    files: list[tuple[int, list[Group]]] = []
    await SamplingLoop(
        records=kept,
        tasks=itertools.islice(ToyDataConfig(kinds=["sub", "add"], image="host").build().tasks(0), plan.tasks),
        run_episode=agent.run,
        on_rollout=lambda rollout: None,
        on_file=lambda number, groups: files.append((number, groups)),
        version=3,
        max_concurrent=3,
        failures=FailurePolicy(FailuresConfig(backoff_s=0.0), retries=retries),
        greedy=greedy,
    ).run()
    return files


async def test_every_rollout_runs_once_and_is_recorded_as_in_training(tmp_path: Path) -> None:
    agent = Agent()
    files = await sampled(tmp_path, agent, greedy=True)
    assert sorted(agent.asked) == [f"{p:06d}-{m:02d}" for p in range(5) for m in range(2)]
    assert [number for number, _ in files] == records.recorded_steps(tmp_path) == [1, 2, 3]
    assert [len(groups) for _, groups in files] == [2, 2, 1]
    loaded = records.grouped(records.load_rollouts(tmp_path, 1))
    assert [[one.rollout_id for one in group.rollouts] for group in loaded] == [
        ["000000-00", "000000-01"],
        ["000001-00", "000001-01"],
    ]
    one = loaded[0].rollouts[0]
    assert one.segments[0].weight_versions.tolist() == [NOT_SAMPLED, 3, 3]  # the checkpoint's number, not the engine's
    assert one.greedy
    first = json.loads((tmp_path / "step_00001.jsonl").read_text().splitlines()[0])
    assert first["problem_statement"].startswith("Fix ")
    assert not list((tmp_path / "buffer").iterdir())
    assert totals(tally(tmp_path))["statuses"] == {"solved": 10}


async def test_infrastructure_is_tried_again_and_never_a_reward_of_zero(tmp_path: Path) -> None:
    agent = Agent(failing={"000000-00": 2, "000001-01": 9})
    files = await sampled(tmp_path, agent)
    rollouts = {one.rollout_id: one for _, groups in files for group in groups for one in group.rollouts}
    assert rollouts["000000-00"].reward == 1.0
    assert rollouts["000000-00"].attempt == 2
    lost = rollouts["000001-01"]
    assert (lost.attempt, lost.reward, lost.status) == (2, None, "sandbox_error")
    figures = totals(tally(tmp_path))
    assert figures["solved_rate"] == 1.0
    assert figures["without_reward"] == 1

    again = Agent()  # a resume runs exactly what infrastructure broke
    await sampled(tmp_path, again)
    assert again.asked == ["000001-01"]
    assert totals(tally(tmp_path))["without_reward"] == 0


@pytest.mark.parametrize("done", [0, 1, 3, 4, 7, 9])
async def test_a_resumed_run_does_exactly_what_is_missing(tmp_path: Path, done: int) -> None:
    first, second = Agent(stop_after=done), Agent()
    with pytest.raises(ExceptionGroup):
        await sampled(tmp_path, first)
    kept = {path.stem for path in (tmp_path / "buffer").glob("*.jsonl")} | {
        one.rollout_id for step in records.recorded_steps(tmp_path) for one in records.load_rollouts(tmp_path, step)
    }
    await sampled(tmp_path, second)
    every = {f"{p:06d}-{m:02d}" for p in range(5) for m in range(2)}
    assert set(second.asked) == every - kept
    assert len(second.asked) == len(set(second.asked))
    assert totals(tally(tmp_path))["rollouts"] == 10
    third = Agent()
    await sampled(tmp_path, third)
    assert third.asked == []


async def test_a_run_that_is_resumed_with_more_tasks_runs_the_new_ones(tmp_path: Path) -> None:
    await sampled(tmp_path, Agent())
    more = Agent()
    await sampled(tmp_path, more, plan=SamplingPlan(tasks=7, members=2, per_file=2))
    assert sorted(more.asked) == [f"{p:06d}-{m:02d}" for p in (5, 6) for m in range(2)]


async def test_records_of_other_tasks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup):
        await sampled(tmp_path, Agent(stop_after=1))
    kept = SamplingRecords(tmp_path, tmp_path / "buffer", PLAN)
    kept.load()
    assert list(kept.done) == [Slot(position=0, member=0)]
    kept.done[Slot(position=0, member=0)] = replace(kept.done[Slot(position=0, member=0)], task_id="another")
    sampling = SamplingLoop(
        records=kept,
        tasks=ToyDataConfig(kinds=["sub"], image="host").build().tasks(0),
        run_episode=Agent().run,
        on_rollout=lambda rollout: None,
        on_file=lambda number, groups: None,
        version=0,
        max_concurrent=1,
        failures=FailurePolicy(FailuresConfig(), retries=0),
    )
    with pytest.raises(ExceptionGroup) as failed:
        await sampling.run()
    assert failed.group_contains(ConfigError, match="recorded for task another")


async def test_a_failed_grading_is_tried_again_without_the_agent_and_a_bug_ends_one_rollout(tmp_path: Path) -> None:
    seen: list[tuple[str, int, bool]] = []

    async def run(request: EpisodeRequest) -> Rollout:
        seen.append((request.rollout_id, request.attempt, request.ungraded is not None))
        if request.rollout_id == "000000-01":
            raise ZeroDivisionError
        if request.rollout_id == "000000-00" and request.attempt == 0:
            return rollout_of(request, verdict=Verdict(status=VerdictStatus.INFRA_ERROR, reward=None))
        return rollout_of(request)

    agent = Agent()
    agent.run = run  # type: ignore[method-assign]
    files = await sampled(tmp_path, agent, plan=SamplingPlan(tasks=1, members=2, per_file=2))
    ((_, (group,)),) = files
    assert ("000000-00", 1, True) in seen
    assert [(one.status, one.reward) for one in group.rollouts] == [("solved", 1.0), ("bug", None)]


def test_a_split_is_its_tasks_once_and_an_endless_source_a_stated_number(tmp_path: Path) -> None:
    config = composed("job=evaluate", "data.split=held_out", "seed=5")
    count, tasks = tasks_of(ToyDataConfig(kinds=["sub"], image="host", split=config.data.split).build(), config, None)
    ids = [task.task_id for task in tasks]
    assert count == len(ids) == 64
    assert ids[0] == "toy-sub-held_out-0-0"  # the same for every seed

    class Finite:
        def tasks(self, seed: int, start: int = 0) -> object:
            raise AssertionError("a finite source is asked for its tasks once")

        def once(self) -> object:
            return itertools.islice(ToyDataConfig(kinds=["sub"], image="host").build().tasks(0), 3)

    assert tasks_of(Finite(), config, None)[0] == 3  # type: ignore[arg-type]
    assert tasks_of(Finite(), config, 2)[0] == 2  # type: ignore[arg-type]

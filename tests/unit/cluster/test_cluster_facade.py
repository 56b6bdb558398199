"""What jobs see of a cluster."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from rl_agent.cluster.bring_up import Cluster
from rl_agent.cluster.run_state import RunState
from rl_agent.engine.base import EngineLoad, total_load
from rl_agent.errors import InfraError
from rl_agent.rollout.group import AbortReason, EpisodeRequest, Rollout, Slot
from rl_agent.tasks.task import EvalCmdSpec, Task

TASK = Task(task_id="t", problem_statement="", image="host", workdir="/w", grader=EvalCmdSpec(eval_cmd="true"))
REQUEST = EpisodeRequest(task=TASK, slot=Slot(position=0, member=0))


class Parts:
    """Policy servers and workers that note what is asked of them."""

    def __init__(self, abort: AbortReason) -> None:
        self.abort = abort
        self.story: list[str] = []

    async def serving(self) -> None:
        self.story.append("serving")

    async def run(self, request: EpisodeRequest) -> Rollout:
        self.story.append("run")
        return Rollout(rollout_id="r", group_id="g", task_id="t", attempt=0, verdict=None, abort=self.abort)

    async def load(self) -> EngineLoad:
        self.story.append("load")
        return EngineLoad()

    async def wake(self) -> None:
        self.story.append("wake")

    async def push(self, version: int, probe_tokens: Any) -> float:
        self.story.append(f"push {version}")
        return 0.5


def cluster(parts: Parts, *, wakes: bool = False, run_state: RunState | None = None) -> Cluster:
    return Cluster(cast("Any", None), cast("Any", parts), cast("Any", parts), run_state or RunState(), wakes=wakes)


@pytest.mark.parametrize(
    ("abort", "story"),
    [
        (AbortReason.WORKER_LOST, ["serving", "run"]),
        (AbortReason.ENGINE_ERROR, ["serving", "run", "load"]),  # is that server still there? the next attempt asks it
    ],
)
async def test_an_episode_waits_for_a_server_and_after_an_engines_failure_it_is_looked_after(
    abort: AbortReason, story: list[str]
) -> None:
    parts = Parts(abort)
    assert (await cluster(parts).run_episode(REQUEST)).abort is abort
    assert parts.story == story


@pytest.mark.parametrize(("wakes", "story"), [(False, ["push 3"]), (True, ["wake", "push 3"])])
async def test_an_engine_that_sleeps_is_woken_before_the_push(wakes: bool, story: list[str]) -> None:
    parts = Parts(AbortReason.ENGINE_ERROR)
    assert await cluster(parts, wakes=wakes).push(3, np.zeros(2, dtype=np.int32)) == 0.5
    assert parts.story == story


async def test_watch_raises_what_ends_the_run() -> None:
    run_state = RunState()
    run_state.end(InfraError("too often"))
    run_state.end(InfraError("and again"))
    with pytest.raises(InfraError, match="too often"):
        await cluster(Parts(AbortReason.ENGINE_ERROR), run_state=run_state).watch()


def test_loads_are_summed_and_what_nobody_tells_stays_unknown() -> None:
    assert total_load([]) == EngineLoad()
    assert total_load([EngineLoad(), EngineLoad(running=2)]) == EngineLoad(running=2)
    parts = [EngineLoad(kv_cache_usage=0.2, running=1, waiting=0), EngineLoad(kv_cache_usage=0.7, running=3, waiting=5)]
    assert total_load(parts) == EngineLoad(kv_cache_usage=0.7, running=4, waiting=5)

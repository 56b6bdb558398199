"""All ranks are called together; one that is gone ends the run; an engine on the same GPU gives way to a step."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from rl_agent.cluster.calls import LostActorError
from rl_agent.cluster.run_state import RunState
from rl_agent.cluster.trainer_ranks import Trainers

if TYPE_CHECKING:
    from rl_agent.cluster.calls import RemoteProcess


class Rank:
    def __init__(self, story: list[str], node: str = "n", number: int = 0) -> None:
        self.story = story
        self.node = node
        self.number = number
        self.gone = False
        self.started: tuple[Any, ...] = ()
        self.given: tuple[Any, ...] = ()

    async def call(self, method: str, *arguments: Any, ends: bool = False) -> Any:
        await asyncio.sleep(0)
        if self.gone:
            raise LostActorError(f"the process of trainer rank {self.number} was lost.")
        if method not in {"place", "meeting_point"}:
            self.story.append(method)
        self.given = arguments
        if method == "start":
            self.started = arguments
        return {"place": self.node, "meeting_point": ("10.0.0.5", 4321), "announce": (None, None)}.get(method, method)

    def kill(self) -> None:
        self.gone = True


def ranks(*nodes: str) -> tuple[list[Rank], list[str]]:
    story: list[str] = []
    return [Rank(story, node, number) for number, node in enumerate(nodes)], story


def trainers(of: list[Rank], **more: Any) -> Trainers:
    return Trainers(cast("list[RemoteProcess]", of), **{"share": lambda value: value, **more})


async def test_ranks_meet_at_the_first_ones_address_and_know_their_place_on_their_node() -> None:
    made, _ = ranks("a", "a", "b", "a")
    await trainers(made).start(Path("/model"))
    assert [rank.started for rank in made] == [(Path("/model"), "10.0.0.5", 4321, place) for place in (0, 1, 0, 2)]


async def test_the_engine_sleeps_before_the_step_begins() -> None:
    made, story = ranks("a", "b")

    async def sleep() -> None:
        story.append("sleep")

    await trainers(made, before_step=sleep).step(cast("Any", None))
    assert story == ["sleep", "step", "step"]


async def test_a_step_waits_for_whoever_needs_the_weights_as_they_are() -> None:
    made, story = ranks("a")
    trainer = trainers(made)
    async with asyncio.TaskGroup() as tasks, trainer.turn:
        tasks.create_task(trainer.step(cast("Any", None)))
        await trainer.logprobs([])
        assert not trainer.ahead
    assert story == ["logprobs", "step"]
    assert trainer.ahead


async def test_a_batch_is_handed_out_once_for_all_ranks() -> None:
    made, _ = ranks("a", "b", "c")
    shared: list[str] = []

    def share(value: str) -> str:
        shared.append(value)
        return f"where {value} is"

    trainer = trainers(made, share=share)
    for ask, what in ((trainer.step, "a batch"), (trainer.logprobs, "sequences")):
        await ask(cast("Any", what))
        assert [rank.given for rank in made] == [(f"where {what} is",)] * 3
    assert shared == ["a batch", "sequences"]


async def test_weights_are_ahead_from_a_step_to_the_next_announcement() -> None:
    made, _ = ranks("a")
    trainer = trainers(made)
    assert not trainer.ahead
    await trainer.step(cast("Any", None))
    assert trainer.ahead
    await trainer.announce(1, np.zeros(2, dtype=np.int32))
    assert not trainer.ahead


async def test_a_lost_rank_is_named_with_the_way_to_go_on() -> None:
    made, _ = ranks("a", "b")
    made[1].kill()
    trainer = trainers(made)
    with pytest.raises(LostActorError, match=r"trainer rank 1 was lost.*resume=<run folder>"):
        await trainer.step(cast("Any", None))
    assert trainer.lost


async def test_a_rank_that_is_lost_while_nothing_is_asked_of_it_ends_the_run() -> None:
    made, _ = ranks("a", "b")
    made[0].kill()
    run_state = RunState()
    await trainers(made).watch(run_state)
    with pytest.raises(LostActorError, match="trainer rank 0"):
        await run_state.until(lambda: False)

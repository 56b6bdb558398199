"""A node that dies with an answer that nobody has fetched: the process is lost, as if it had died before it answered. Real Ray, two raylets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pytest
import ray
from ray.cluster_utils import Cluster

from rl_agent.cluster.calls import Actor, LostActorError, result

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.long]

OTHER = "other"
LARGE = 5_000_000
"""Bytes: far beyond what Ray sends along with the answer; it stays on its node until it is fetched."""


def answers() -> type:
    """A class of its own, so that Ray sends it along instead of its name: the other side has no `tests`."""

    class Answers:
        def large(self) -> np.ndarray:
            return np.ones(LARGE, np.uint8)

        def small(self) -> int:
            return 1

    return Answers


@pytest.fixture
def two_nodes() -> Iterator[Cluster]:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


async def test_an_answer_that_died_with_its_node_is_a_lost_process(two_nodes: Cluster) -> None:
    node = two_nodes.add_node(num_cpus=1, resources={OTHER: 1})
    handle = ray.remote(answers()).options(max_restarts=0, num_cpus=0, resources={OTHER: 1}).remote()
    actor = Actor(handle, "rollout worker 3")
    assert await actor.call("small") == 1
    answer = handle.large.remote()
    ray.wait([answer], fetch_local=False)

    two_nodes.remove_node(node, allow_graceful=False)
    async with asyncio.timeout(120):
        with pytest.raises(LostActorError, match="the node of rollout worker 3 was lost"):
            await result(answer, "rollout worker 3")
        with pytest.raises(LostActorError, match="the process of rollout worker 3 was lost"):
            await actor.call("small")

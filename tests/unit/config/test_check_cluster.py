"""Clusters that cannot work are refused before anything starts, each with a remedy."""

from __future__ import annotations

import pytest

from rl_agent.config.check import check
from rl_agent.config.hints import precompose
from rl_agent.config.load import load
from tests.conftest import CONF

COLOCATED = (
    "cluster.colocated=true",
    "cluster.trainer_gpus=0.5",
    "cluster.engine_gpus=0.5",
    "algo.max_staleness=0",
)


def places(*overrides: str) -> list[str]:
    return [problem.where for problem in check(load(precompose(CONF, "config", list(overrides))))]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], []),
        (["cluster.engine_replicas=2", "cluster.rollout_workers=4"], []),
        (["cluster.engine_replicas=0"], ["cluster.engine_replicas"]),
        (["cluster.max_restarts=-1"], ["cluster.max_restarts"]),
        (["cluster.engine_replicas=2", "engine.port=8000"], ["engine.port"]),
        (["cluster.engine_replicas=2", "weights=ipc"], ["weights"]),
        (["cluster.worker_nodes='role=cpu'"], ["cluster.worker_nodes"]),
        (["cluster=ray_address", "cluster.worker_nodes='role=cpu'"], []),
        (["cluster=ray_address", "cluster.engine_nodes=gpu"], ["cluster.engine_nodes"]),
        (["cluster=ray_address", "engine.host=127.0.0.1"], ["engine.host"]),
        (["cluster=ray_address", "weights=gloo", "weights.host=localhost"], ["weights.host"]),
        (["cluster=ray_address", "weights=gloo"], []),
        (["cluster.ship_code=true"], ["cluster.ship_code"]),
        (["adapter.advertise_host=auto"], ["adapter.advertise_host"]),
        (COLOCATED, []),
        ([*COLOCATED, "cluster.engine_gpus=1"], ["cluster.colocated"]),
        ([*COLOCATED, "cluster.engine_replicas=2"], ["cluster.colocated"]),
        ([*COLOCATED, "algo.max_staleness=1"], ["cluster.colocated"]),
    ],
)
def test_each_contradiction_is_found_at_its_place(overrides: list[str], expected: list[str]) -> None:
    assert places(*overrides) == expected

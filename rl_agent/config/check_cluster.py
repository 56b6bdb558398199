"""Checks of the placement, the addresses and the number of processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_agent.config.plug_in import Problem, at_least
from rl_agent.config.sandbox import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.config.schema import Config


def cluster_problems(config: Config) -> Iterator[Problem]:
    """Yield the problems of `cluster`."""
    yield from _numbers(config)
    yield from _nodes(config)
    yield from _addresses(config)
    yield from _replicas(config)
    if config.cluster.colocated:
        yield from _colocated(config)


def _numbers(config: Config) -> Iterator[Problem]:
    cluster = config.cluster
    yield from at_least(
        1,
        cluster__rollout_workers=cluster.rollout_workers,
        cluster__engine_replicas=cluster.engine_replicas,
        cluster__restart_window_s=cluster.restart_window_s,
    )
    yield from at_least(0, cluster__max_restarts=cluster.max_restarts)


def _nodes(config: Config) -> Iterator[Problem]:
    cluster = config.cluster
    for name in ("worker_nodes", "engine_nodes", "trainer_nodes"):
        nodes = getattr(cluster, name)
        if nodes is None:
            continue
        label, equals, value = nodes.partition("=")
        if not (label and equals and value):
            yield Problem(
                f"cluster.{name}", f"{nodes!r}: not `label=value`.", f"Use for example \"cluster.{name}='role=gpu'\"."
            )
        elif cluster.address is None:
            yield Problem(
                f"cluster.{name}",
                "a cluster that the run starts on this machine has no labels.",
                "Set cluster.address to a cluster with labels (docs/scaling.md), or leave it null.",
            )
    if cluster.ship_code and cluster.address is None:
        yield Problem(
            "cluster.ship_code", "true, but there is no other node.", "Set it to false, or set cluster.address."
        )


def _addresses(config: Config) -> Iterator[Problem]:
    if config.cluster.address is not None:
        for group, host in (("engine", config.engine.host), ("weights", config.weights.host)):
            if is_loopback(host):
                yield Problem(
                    f"{group}.host",
                    f"{host}: other nodes of the cluster cannot reach this address.",
                    f"Set {group}.host=auto for the address of the node.",
                )


def _replicas(config: Config) -> Iterator[Problem]:
    replicas, port = config.cluster.engine_replicas, config.engine.port
    if port and replicas > 1:
        yield Problem(
            "engine.port",
            f"{port}: cluster.engine_replicas={replicas} policy servers on a node cannot share a port.",
            "Set engine.port=0.",
        )
    if replicas > 1 and config.weights.same_gpu:
        yield Problem(
            "weights",
            f"ipc supports only one engine, on the trainer's GPU, but cluster.engine_replicas={replicas}.",
            "Set weights=nccl or weights=disk.",
        )


def _colocated(config: Config) -> Iterator[Problem]:
    """Yield the problems of a trainer rank and a policy server that share a GPU."""
    cluster, ranks = config.cluster, config.trainer.world_size
    if not 0 < cluster.trainer_gpus + cluster.engine_gpus <= 1 or not cluster.trainer_gpus or not cluster.engine_gpus:
        yield Problem(
            "cluster.colocated",
            f"a trainer rank ({cluster.trainer_gpus:g} GPU) and a policy server ({cluster.engine_gpus:g}) must share one GPU.",
            "Set cluster.trainer_gpus=0.5 cluster.engine_gpus=0.5.",
        )
    if config.engine.tensor_parallel > 1 or cluster.engine_replicas > ranks:
        yield Problem(
            "cluster.colocated",
            f"each of {cluster.engine_replicas} policy servers needs exactly one of the {ranks} ranks' GPUs.",
            "Set engine.tensor_parallel=1, and at most as many cluster.engine_replicas as ranks.",
        )
    if config.algo.max_staleness:
        yield Problem(
            "cluster.colocated",
            f"algo.max_staleness={config.algo.max_staleness}, but the engine sleeps while the trainer works.",
            "Set algo.max_staleness=0.",
        )

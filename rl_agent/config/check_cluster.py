"""Contradictions in where processes run, how they reach each other, and how many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rl_agent.config.node import get
from rl_agent.config.trainer import world_size
from rl_agent.ports import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.config.schema import Config

IPC: Final = "rl_agent.weights.ipc.IpcSender"


def cluster_problems(config: Config) -> Iterator[tuple[str, str, str]]:
    """Place, fault and remedy of each."""
    yield from _numbers(config)
    yield from _nodes(config)
    yield from _addresses(config)
    yield from _replicas(config)
    if config.cluster.colocated:
        yield from _colocated(config)


def _numbers(config: Config) -> Iterator[tuple[str, str, str]]:
    cluster = config.cluster
    for name, least in (("engine_replicas", 1), ("max_restarts", 0), ("restart_window_s", 1)):
        if (value := getattr(cluster, name)) < least:
            yield f"cluster.{name}", f"{value:g} is less than {least}.", f"set it to at least {least}"


def _nodes(config: Config) -> Iterator[tuple[str, str, str]]:
    cluster = config.cluster
    for name in ("worker_nodes", "engine_nodes", "trainer_nodes"):
        nodes = getattr(cluster, name)
        if nodes is None:
            continue
        label, equals, value = nodes.partition("=")
        if not (label and equals and value):
            yield f"cluster.{name}", f"{nodes!r} is no `label=value`.", f"for example \"cluster.{name}='role=gpu'\""
        elif cluster.address is None:
            yield (
                f"cluster.{name}",
                "the cluster that the run starts on this machine has no labels.",
                "set cluster.address to a cluster whose nodes have them (docs/scaling.md), or leave it null",
            )
    if cluster.ship_code and cluster.address is None:
        yield "cluster.ship_code", "there is no other node to send code to.", "leave it false, or set cluster.address"


def _addresses(config: Config) -> Iterator[tuple[str, str, str]]:
    if config.cluster.address is not None:
        for group, node in (("engine", config.engine), ("weights", config.weights)):
            host = get(node, "host")
            if is_loopback(host):
                yield (
                    f"{group}.host",
                    f"processes on other nodes of the cluster do not reach {host}.",
                    f"{group}.host=auto takes the node's own address",
                )


def _replicas(config: Config) -> Iterator[tuple[str, str, str]]:
    replicas, port = config.cluster.engine_replicas, get(config.engine, "port")
    if port and replicas > 1:
        yield (
            "engine.port",
            f"only one of cluster.engine_replicas={replicas} policy servers on a node can have port {port}.",
            "engine.port=0",
        )
    if replicas > 1 and get(config.weights, "_target_") == IPC:
        yield (
            "weights",
            f"ipc reaches one engine on the trainer's GPU, not cluster.engine_replicas={replicas}.",
            "weights=nccl or weights=disk",
        )


def _colocated(config: Config) -> Iterator[tuple[str, str, str]]:
    """One GPU for a trainer rank and a policy server."""
    cluster, ranks = config.cluster, world_size(config.trainer)
    if not 0 < cluster.trainer_gpus + cluster.engine_gpus <= 1 or not cluster.trainer_gpus or not cluster.engine_gpus:
        yield (
            "cluster.colocated",
            f"a trainer rank ({cluster.trainer_gpus:g} GPU) and a policy server ({cluster.engine_gpus:g}) must share one GPU.",
            "cluster.trainer_gpus=0.5 cluster.engine_gpus=0.5",
        )
    if (get(config.engine, "tensor_parallel") or 1) > 1 or cluster.engine_replicas > ranks:
        yield (
            "cluster.colocated",
            f"each of {cluster.engine_replicas} policy servers needs one of the {ranks} ranks' GPUs, and one only.",
            "engine.tensor_parallel=1, and at most as many cluster.engine_replicas as ranks",
        )
    if get(config.algo, "max_staleness"):
        yield (
            "cluster.colocated",
            f"algo.max_staleness={config.algo.max_staleness} samples while the trainer works, and then the engine sleeps.",
            "algo.max_staleness=0",
        )

"""Placement of processes: trainer ranks, then policy servers, on as few nodes as possible; workers round-robin."""

from __future__ import annotations

from dataclasses import dataclass

from rl_agent.errors import ConfigError


@dataclass(slots=True, kw_only=True)
class Node:
    """Processes and GPUs of one machine."""

    gpus_left: float
    trainer_ranks: int = 0
    engines: int = 0
    workers: int = 0

    @property
    def processes(self) -> str:
        """Description of the processes."""
        parts = [
            (self.trainer_ranks, "trainer ranks"),
            (self.engines, "policy servers"),
            (self.workers, "rollout workers"),
        ]
        return ", ".join(f"{count} {what}" for count, what in parts if count) or "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Number of processes, and GPUs per process."""

    ranks: int
    gpus_per_rank: float
    engines: int
    gpus_per_engine: float
    workers: int
    colocated: bool
    """True if each policy server shares the GPU of a trainer rank. Every rank then reserves a server's share too."""

    @property
    def gpus_per_place(self) -> float:
        """GPUs of a trainer rank, including a colocated server."""
        return self.gpus_per_rank + (self.gpus_per_engine if self.colocated else 0.0)

    @property
    def gpus(self) -> float:
        """Total number of GPUs."""
        return self.ranks * self.gpus_per_place + (0.0 if self.colocated else self.engines * self.gpus_per_engine)


def nodes_needed(demand: Demand, gpus_per_node: int) -> int:
    """Return the smallest sufficient number of machines. Raises ConfigError if a process does not fit on a machine."""
    count = 1
    while demand.gpus and _placed(demand, count, gpus_per_node) is None:
        count += 1
        if count > demand.gpus + 1:
            raise ConfigError(
                f"job.gpus_per_node={gpus_per_node}: too few for a process that needs "
                f"{max(demand.gpus_per_rank, demand.gpus_per_engine):g} GPUs. Lower engine.tensor_parallel and "
                "cluster.engine_gpus, or raise job.gpus_per_node."
            )
    return count


def place(demand: Demand, nodes: int, gpus_per_node: int) -> list[Node]:
    """Place the processes on `nodes` machines. Raises ConfigError if they have too few GPUs."""
    placed = _placed(demand, nodes, gpus_per_node)
    if placed is None:
        raise ConfigError(
            f"{demand.gpus:g} GPUs are requested ({demand.ranks} trainer ranks x {demand.gpus_per_rank:g}, "
            f"{demand.engines} policy servers x {demand.gpus_per_engine:g}), but {nodes} machines x {gpus_per_node} "
            "GPUs are too few. Raise job.nodes, or lower trainer.data_parallel or cluster.engine_replicas."
        )
    return placed


def _placed(demand: Demand, count: int, gpus_per_node: int) -> list[Node] | None:
    nodes = [Node(gpus_left=gpus_per_node) for _ in range(count)]
    for rank in range(demand.ranks):
        if (node := _with_room(nodes, demand.gpus_per_place)) is None:
            return None
        node.gpus_left -= demand.gpus_per_place
        node.trainer_ranks += 1
        node.engines += demand.colocated and rank < demand.engines
    for _ in range(0 if demand.colocated else demand.engines):
        if (node := _with_room(nodes, demand.gpus_per_engine)) is None:
            return None
        node.gpus_left -= demand.gpus_per_engine
        node.engines += 1
    for number in range(demand.workers):
        nodes[number % count].workers += 1
    return nodes


def _with_room(nodes: list[Node], gpus: float) -> Node | None:
    return next((node for node in nodes if node.gpus_left >= gpus - 1e-9), None)

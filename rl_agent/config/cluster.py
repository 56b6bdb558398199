"""Schema of `cluster/`: where processes run, how many there are, and how often a lost one is started again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TrainerPlacement(StrEnum):
    """Placement of the trainer's ranks on nodes: Ray's placement strategies."""

    pack = "pack"
    """On as few nodes as possible."""
    strict_pack = "strict_pack"
    """All on one node."""
    spread = "spread"
    """On as many nodes as possible."""
    strict_spread = "strict_spread"
    """Each on another node."""


@dataclass(kw_only=True)
class ClusterConfig:
    """A Ray cluster."""

    address: str | None = None
    """Address of a running Ray cluster, `host:port` or `auto`; null: start one on this machine and stop it at the end."""
    rollout_workers: int = 1
    """Processes that run episodes; each has its own adapter."""
    cpus_per_worker: float = 0.0
    """CPUs that a rollout worker reserves in Ray; 0 on a laptop, where all processes share the cores."""
    worker_nodes: str | None = None
    """`label=value`: the nodes for rollout workers, as labelled with `ray start --labels`; null: any."""
    workers_elsewhere: bool = True
    """Run rollout workers on other nodes while none of `worker_nodes` is alive."""
    engine_replicas: int = 1
    """Policy servers with the same weights; a session stays with one of them."""
    engine_gpus: float = 0.0
    """GPUs that each policy server reserves in Ray."""
    engine_nodes: str | None = None
    """`label=value`: the nodes for policy servers; null: any."""
    trainer_gpus: float = 0.0
    """GPUs that each trainer rank reserves in Ray."""
    trainer_cpus: float = 0.0
    """CPUs that each trainer rank reserves in Ray."""
    trainer_nodes: str | None = None
    """`label=value`: the nodes for trainer ranks; null: any."""
    trainer_placement: TrainerPlacement = TrainerPlacement.pack
    """Placement of the ranks, if they reserve resources."""
    colocated: bool = False
    """Each policy server is on the GPU of one trainer rank, and sleeps while the trainer works."""
    max_restarts: int = 3
    """Restarts of a lost policy server or rollout worker within `restart_window_s`. One more loss ends the run."""
    restart_window_s: float = 600.0
    ship_code: bool = False
    """Send this machine's `rl_agent` to all nodes, instead of using what is installed there."""
    start_timeout_s: float = 1200.0

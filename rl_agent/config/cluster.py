"""Config of the cluster: placement and number of processes, and limits on restarts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TrainerPlacement(StrEnum):
    """Placement of the trainer's ranks on nodes, by Ray's placement strategies."""

    pack = "pack"
    """As few nodes as possible."""
    strict_pack = "strict_pack"
    """One node."""
    spread = "spread"
    """As many nodes as possible."""
    strict_spread = "strict_spread"
    """A different node for each rank."""


@dataclass(kw_only=True)
class ClusterConfig:
    """Options of the Ray cluster."""

    address: str | None = None
    """Address of a running Ray cluster, `host:port` or `auto`; null: start Ray on this machine and stop it at the
    end."""
    rollout_workers: int = 1
    """Number of processes that run episodes. Each has its own adapter."""
    cpus_per_worker: float = 0.0
    """CPUs that each rollout worker reserves in Ray. Use 0 on a laptop, where all processes share the cores."""
    worker_nodes: str | None = None
    """Nodes for rollout workers, as `label=value` of `ray start --labels`; null: any node."""
    workers_elsewhere: bool = True
    """Run rollout workers on other nodes if none of `worker_nodes` is alive."""
    engine_replicas: int = 1
    """Number of policy servers with the same weights. A session stays with one of them."""
    engine_gpus: float = 0.0
    """GPUs that each policy server reserves in Ray."""
    engine_nodes: str | None = None
    """Nodes for policy servers, as `label=value`; null: any node."""
    trainer_gpus: float = 0.0
    """GPUs that each trainer rank reserves in Ray."""
    trainer_cpus: float = 0.0
    """CPUs that each trainer rank reserves in Ray."""
    trainer_nodes: str | None = None
    """Nodes for trainer ranks, as `label=value`; null: any node."""
    trainer_placement: TrainerPlacement = TrainerPlacement.pack
    """Placement of the ranks, if they reserve resources."""
    colocated: bool = False
    """Each policy server shares the GPU of one trainer rank, and sleeps while the trainer works."""
    max_restarts: int = 3
    """Maximum restarts of one policy server or rollout worker within `restart_window_s`. One more loss ends the run."""
    restart_window_s: float = 600.0
    """Time window in which restarts count."""
    ship_code: bool = False
    """Send this machine's `rl_agent` to all nodes, instead of using the installed version there."""
    start_timeout_s: float = 1200.0
    """Time limit for the start of the processes."""

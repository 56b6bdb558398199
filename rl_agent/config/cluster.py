"""Schema of `cluster/`: where processes run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(slots=True, kw_only=True)
class ClusterConfig:
    """A Ray cluster."""

    address: str | None = None
    """Of a running Ray cluster; null: one is started on this machine and stopped at the end."""
    rollout_workers: int = 1
    """Processes that run episodes; each has its own adapter."""
    cpus_per_worker: float = 0.0
    """What a rollout worker reserves in Ray; 0 on a laptop, where everything shares the cores."""
    trainer_gpus: float = 0.0
    """GPUs that each trainer rank reserves in Ray."""
    engine_gpus: float = 0.0
    """GPUs that the policy server reserves in Ray."""
    start_timeout_s: float = 1200.0


SCHEMAS: Final = {"cluster": ClusterConfig}

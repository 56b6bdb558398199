"""Placement of processes on the nodes of a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rl_agent.errors import InfraError

if TYPE_CHECKING:
    from rl_agent.config.cluster import ClusterConfig


class RayPlacement:
    """Ray options of each kind of process. Trainer ranks and colocated engines share a placement group."""

    def __init__(self, cluster: ClusterConfig, ranks: int) -> None:
        self._cluster = cluster
        self._group: Any = None
        shared = cluster.engine_gpus if cluster.colocated else 0.0
        bundle = {"GPU": cluster.trainer_gpus + shared, "CPU": cluster.trainer_cpus}
        bundle = {name: amount for name, amount in bundle.items() if amount}
        if bundle and ranks:
            labels = selector(cluster.trainer_nodes)
            self._group = placement_group(
                [bundle] * ranks,
                strategy=cluster.trainer_placement.value.upper(),
                **({"bundle_label_selector": [labels] * ranks} if labels else {}),
            )

    def require(self, timeout_s: float) -> None:
        """Raise InfraError if the cluster has no room for the trainer. Blocks."""
        if self._group is None:
            return
        if not self._group.wait(timeout_s):
            wanted = self._group.bundle_specs
            raise InfraError(
                f"cluster.trainer_placement={self._cluster.trainer_placement.value}: no room for the trainer's {len(wanted)} ranks of "
                f"{wanted[0]} after {timeout_s:.0f} s. Available: {ray.available_resources()}. "
                "Add nodes, change cluster.trainer_nodes, or choose a looser placement."
            )

    def worker(self) -> dict[str, Any]:
        """Return the options of a rollout worker."""
        cluster = self._cluster
        options: dict[str, Any] = {"num_cpus": cluster.cpus_per_worker}
        if labels := selector(cluster.worker_nodes):
            options["label_selector"] = labels
            if cluster.workers_elsewhere:
                options["fallback_strategy"] = [{"label_selector": {}}]
        return options

    def server(self, number: int) -> dict[str, Any]:
        """Return the options of policy server `number`."""
        cluster = self._cluster
        options: dict[str, Any] = {"num_cpus": 0, "num_gpus": cluster.engine_gpus}
        if cluster.colocated and self._group is not None:
            return options | self._bundle(number)
        if labels := selector(cluster.engine_nodes):
            options["label_selector"] = labels
        return options

    def rank(self, number: int) -> dict[str, Any]:
        """Return the options of trainer rank `number`."""
        cluster = self._cluster
        options: dict[str, Any] = {"num_cpus": cluster.trainer_cpus, "num_gpus": cluster.trainer_gpus}
        if self._group is not None:
            return options | self._bundle(number)
        if labels := selector(cluster.trainer_nodes):
            options["label_selector"] = labels
        return options

    def remove(self) -> None:
        """Release the reservations."""
        if self._group is not None:
            remove_placement_group(self._group)

    def _bundle(self, number: int) -> dict[str, Any]:
        return {"scheduling_strategy": PlacementGroupSchedulingStrategy(self._group, number)}


def selector(nodes: str | None) -> dict[str, str]:
    """Return `label=value` as a Ray label selector, empty for None."""
    if nodes is None:
        return {}
    label, _, value = nodes.partition("=")
    return {label: value}

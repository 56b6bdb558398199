"""Options of `python -m rl_agent.cluster up|down|status`, which starts Ray on a list of hosts."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING


@dataclass(slots=True, kw_only=True)
class BringUpConfig:
    """Given as `name=value`."""

    hosts: str = MISSING
    """`name[=address][:role],...`: first the one where runs will be started. `name` is what ssh calls it, `address` (without
    one, what Ray finds) how the other hosts reach it; `role` becomes the node's label `role=...`, for cluster.worker_nodes and
    the like."""
    port: int = 6379
    """Port of Ray on the first host. Clusters that share hosts need different ports."""
    ssh: str = "ssh -o BatchMode=yes -o ConnectTimeout=10"
    """Command that runs a shell on a host. It is called with the host's name and `bash -s`, and reads a script from stdin."""
    python: str | None = None
    """The Python that has rl_agent, on every host; null: at the same path as here."""
    start_options: str = ""
    """Appended to `ray start` on every host, for example `--num-gpus=8`."""
    timeout_s: float = 120.0
    """For each host."""

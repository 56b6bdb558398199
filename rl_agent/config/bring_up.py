"""Options of `python -m rl_agent.cluster up|down|status`, which starts Ray on a list of hosts."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING


@dataclass(slots=True, kw_only=True)
class BringUpConfig:
    """Options of the command line, given as `name=value`."""

    hosts: str = MISSING
    """Hosts as `name[=address][:role],...`. Runs start on the first host. `name`: name for ssh. `address`: address at
    which other hosts reach it, by default the one that Ray finds. `role`: value of the node's label `role`, for example
    for cluster.worker_nodes."""
    port: int = 6379
    """Port of Ray on the first host. Clusters that share hosts need different ports."""
    ssh: str = "ssh -o BatchMode=yes -o ConnectTimeout=10"
    """Command that runs a shell on a host. It is called with the host's name and `bash -s`, with a script on stdin."""
    python: str | None = None
    """Path of the Python with rl_agent on every host; null: the path of this Python."""
    start_options: str = ""
    """Options that are appended to `ray start` on every host, for example `--num-gpus=8`."""
    timeout_s: float = 120.0
    """Time limit per host."""

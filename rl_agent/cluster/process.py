"""What every process of a run sets up first: its log in the run folder, quiet libraries, and where others find it."""

from __future__ import annotations

import faulthandler
import gc
import logging
import warnings
from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import ray

from rl_agent.ports import LOOPBACK

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.config.schema import Config

AUTO: Final = "auto"
"""In the place of an address: this process's own."""


def set_up(log_file: Path) -> None:
    """Log this process to `log_file`, also where it stood if it crashes in native code."""
    handler = logging.FileHandler(log_file)
    assert handler.stream is not None
    faulthandler.enable(handler.stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.addHandler(handler)
    logging.captureWarnings(capture=True)
    warnings.simplefilter("once")


def own_address(config: Config) -> str:
    """Where the run's other processes find this one: its node's address in a cluster, loopback on a machine of its own."""
    return LOOPBACK if config.cluster.address is None else node_address()


def node_address() -> str:
    """The address of this machine on its network, also where the run's own processes use loopback."""
    return str(ray.util.get_node_ip_address())


def addressed(node: Any, key: str, address: str) -> Any:
    """A group's configuration whose field `key` says `address` where it said `auto`."""
    if is_dataclass(node) and not isinstance(node, type) and getattr(node, key, None) == AUTO:
        return replace(node, **{key: address})
    return node


def exempt_loaded_objects() -> None:
    """Keep what is alive now out of garbage collection.

    Libraries alone are 360,000 objects, and a full pass over them stops an event loop for a fifth of a second. To be called once
    everything is loaded.
    """
    gc.collect()
    gc.freeze()

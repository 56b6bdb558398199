"""Setup of each process of a run: its log in the run folder, quiet libraries, and its address."""

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
"""Placeholder for the address of this process."""


def set_up(log_file: Path) -> None:
    """Log this process to `log_file`, including the stack of a crash in native code."""
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
    """Return the address at which other processes of the run reach this one: the node's in a cluster, else loopback."""
    return LOOPBACK if config.cluster.address is None else node_address()


def node_address() -> str:
    """Return the address of this machine on its network, even if the run's own processes use loopback."""
    return str(ray.util.get_node_ip_address())


def addressed(node: Any, key: str, address: str) -> Any:
    """Return a config group with `address` in its field `key` if that field is `auto`."""
    if is_dataclass(node) and not isinstance(node, type) and getattr(node, key, None) == AUTO:
        return replace(node, **{key: address})
    return node


def exempt_loaded_objects() -> None:
    """Exclude all live objects from garbage collection. Call this once everything is loaded.

    The libraries alone have 360,000 objects. A full collection over them blocks an event loop for 0.2 s.
    """
    gc.collect()
    gc.freeze()

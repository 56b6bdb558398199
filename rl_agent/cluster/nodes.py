"""Checks of every node before a run starts: the node has the same code and sees the run folder."""

from __future__ import annotations

import hashlib
import platform
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import rl_agent
from rl_agent.errors import ConfigError
from rl_agent.run_folder import write_atomic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rl_agent.run_folder import RunFolder

PACKAGE: Final = Path(rl_agent.__file__).parent
LOOK_TIMEOUT_S: Final = 120.0
"""Time limit for the first process on a node, which imports Ray and this package from a cold disk."""


def facts(sentinel: str) -> dict[str, str]:
    """Return the facts about the node that runs this. `sentinel`: a file in the run folder."""
    path = Path(sentinel)
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "code": digest(PACKAGE),
        "sentinel": path.read_text() if path.is_file() else "",
    }


def digest(package: Path) -> str:
    """Return a hash of all Python files of a package."""
    total = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        total.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def require_nodes(folder: RunFolder) -> None:
    """Check every live node. Raises ConfigError with all problems. Blocks."""
    sentinel, word = folder.root / ".seen_by_nodes", secrets.token_hex(8)
    write_atomic(sentinel, word.encode())
    try:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        mine = facts(str(sentinel))
        look = ray.remote(facts)
        asked = {
            node["NodeManagerAddress"]: look.options(
                num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote(str(sentinel))
            for node in nodes
        }
        problems: list[str] = []
        for address, reference in asked.items():
            try:
                problems += differences(address, mine, ray.get(reference, timeout=LOOK_TIMEOUT_S), folder.root)
            except RayError as error:
                problems.append(
                    f"node {address} cannot run rl_agent: {str(error).strip().splitlines()[-1]}. Install it there with the environment "
                    "at the same path, or remove the node from the cluster."
                )
    finally:
        sentinel.unlink(missing_ok=True)
    if problems:
        raise ConfigError("\n".join(problems))


def differences(address: str, mine: Mapping[str, str], theirs: Mapping[str, Any], root: Path) -> Sequence[str]:
    """Return the reasons for which a node cannot run the job, one message per reason."""
    found = []
    if theirs["sentinel"] != mine["sentinel"]:
        found.append(
            f"node {address} does not see the run folder {root}. Put it on a file system that all nodes share "
            "(output=/shared/..., or hydra.run.dir=...)."
        )
    if theirs["python"] != mine["python"]:
        found.append(
            f"node {address} runs Python {theirs['python']}, this node runs {mine['python']}. Use the same version on both."
        )
    if theirs["code"] != mine["code"]:
        found.append(
            f"node {address} has another version of rl_agent. Install the same version there, or set cluster.ship_code=true."
        )
    return found

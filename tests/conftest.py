"""Shared fixtures: the registered schemas, and the watch over everything that a test may leave behind."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from omegaconf import OmegaConf

from rl_agent.config.options import register
from tests import left

if TYPE_CHECKING:
    from collections.abc import Iterator

CONF = Path(__file__).parent.parent / "conf"
GRACE_S = 10.0
"""How long a killed process may take to be gone from the process table."""


@pytest.fixture(autouse=True, scope="session")
def registered() -> None:
    """Hydra knows the schemas and resolvers, as after `python -m rl_agent` has started."""
    register()
    OmegaConf.register_new_resolver("rl_agent.run_dir", lambda *parts: "/".join(str(p) for p in parts), replace=True)


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves a process or a mount. Fixtures with a wider scope are started before the first look."""
    for name in ("megatron_worker", "vllm_url", "warm_engine"):
        if name in request.fixturenames:
            request.getfixturevalue(name)
    mounts, children = left.mounts(), left.children()
    yield
    if left.children() - children:
        gc.collect()  # a process whose handle nobody holds any more is reaped with it
    deadline = time.monotonic() + GRACE_S
    while (remaining := left.children() - children) and time.monotonic() < deadline:
        time.sleep(0.05)
    names = [" ".join(psutil.Process(pid).cmdline())[:120] for pid in remaining if psutil.pid_exists(pid)]
    assert not remaining, f"processes left behind: {names}"
    assert not (more := left.mounts() - mounts), f"mounts left behind: {more}"

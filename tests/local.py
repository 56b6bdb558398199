"""Builds what tests of sandboxes, harnesses and graders need from the schemas' defaults."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent import secrets
from rl_agent.config.gateway import GatewayConfig
from rl_agent.graders.eval_cmd import EvalCmdConfig
from rl_agent.sandboxes.e2b.provider import E2BSandboxConfig
from rl_agent.sandboxes.local.provider import LocalSandboxConfig
from rl_agent.tasks.task import EvalCmdSpec, Task
from tests.gateway_faults import FaultyGateway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from rl_agent.graders.eval_cmd import EvalCmd
    from rl_agent.sandboxes.base import SandboxProvider
    from rl_agent.sandboxes.e2b.provider import E2BProvider
    from rl_agent.sandboxes.gateway.server import Gateway
    from rl_agent.sandboxes.local.provider import LocalProvider
    from tests.gateway_faults import Fault

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the local sandbox needs root")


def local_provider(folder: Path, **changes: Any) -> LocalProvider:
    return LocalSandboxConfig(**{"state_dir": str(folder), "nice": 0, **changes}).build()


GATEWAY_KEY = "e2b_" + "0" * 40


@asynccontextmanager
async def local_as_it_is(folder: Path) -> AsyncIterator[SandboxProvider]:
    yield local_provider(folder)


@asynccontextmanager
async def gateway(folder: Path, *, faults: Sequence[Fault] = (), **changes: Any) -> AsyncIterator[Gateway]:
    """Our gateway in this process, over the local sandbox."""
    values = {"port": 0, "expose": ["127.0.0.1:*"], "assets_dir": str(folder / "assets"), **changes}
    async with FaultyGateway(
        local_provider(folder / "local"), GatewayConfig(**values), key=GATEWAY_KEY, faults=faults
    ) as opened:
        yield opened


def e2b_provider(url: str, folder: Path, **changes: Any) -> E2BProvider:
    """The provider over the real SDK."""
    secrets.set_for_children("E2B_API_KEY", GATEWAY_KEY)
    values = {"api_url": url, "sandbox_url": url, "state_dir": str(folder / "e2b"), **changes}
    return E2BSandboxConfig(**values).build()


@asynccontextmanager
async def e2b_through_a_gateway(folder: Path) -> AsyncIterator[SandboxProvider]:
    """Real SDK -> our gateway -> local."""
    async with gateway(folder) as opened:
        yield e2b_provider(opened.url, folder)


def eval_cmd(**changes: Any) -> EvalCmd:
    grader: EvalCmd = EvalCmdConfig(**changes).build()
    return grader


def calc_task(**changes: Any) -> Task:
    """`total` must subtract; its file adds."""
    test = "from calc import total\nassert total(3, 1) == 2\n"
    values: dict[str, Any] = {
        "task_id": "calc",
        "problem_statement": "Fix calc.py: total must return the first argument minus the second.",
        "image": "host",
        "workdir": "/workspace/repo",
        "grader": EvalCmdSpec(eval_cmd="python3 hidden_test.py", files={"hidden_test.py": test}),
        "files": {"calc.py": "def total(a, b):\n    return a + b\n"},
    }
    return Task(**{**values, **changes})

"""Builds what tests of sandboxes, harnesses and graders need from the schemas' defaults."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.config.grader import EvalCmdConfig
from rl_agent.config.load import build
from rl_agent.config.sandbox import LocalSandboxConfig
from rl_agent.tasks.task import GraderSpec, Task

if TYPE_CHECKING:
    from pathlib import Path

    from rl_agent.graders.eval_cmd import EvalCmd
    from rl_agent.sandboxes.local.provider import LocalProvider

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the local sandbox needs root")


def local_provider(folder: Path, **changes: Any) -> LocalProvider:
    provider: LocalProvider = build(LocalSandboxConfig(**{"state_dir": str(folder), "nice": 0, **changes}))
    return provider


def eval_cmd(**changes: Any) -> EvalCmd:
    grader: EvalCmd = build(EvalCmdConfig(**changes))
    return grader


def calc_task(**changes: Any) -> Task:
    """`total` must subtract; its file adds."""
    test = "from calc import total\nassert total(3, 1) == 2\n"
    values: dict[str, Any] = {
        "task_id": "calc",
        "problem_statement": "Fix calc.py: total must return the first argument minus the second.",
        "image": "host",
        "workdir": "/workspace/repo",
        "grader": GraderSpec(eval_cmd="python3 hidden_test.py", files={"hidden_test.py": test}),
        "files": {"calc.py": "def total(a, b):\n    return a + b\n"},
    }
    return Task(**{**values, **changes})

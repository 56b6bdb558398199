"""Reads which tests passed from the plug-in that pytest runs with."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rl_agent.graders.sandboxed import TOOLS
from rl_agent.sandboxes.base import UnreadableError

if TYPE_CHECKING:
    from rl_agent.graders.sandboxed import Trial
    from rl_agent.sandboxes.base import Sandbox

PLUGIN: Final = "rl_agent_pytest_outcomes"
FILE: Final = "/tmp/rl_agent_outcomes"  # noqa: S108 (in the sandbox)
FILE_BYTES: Final = 32 << 20
"""Some 200,000 tests write less."""
KEEP_GOING: Final = 'export PYTEST_ADDOPTS="--maxfail=0${PYTEST_ADDOPTS:+ $PYTEST_ADDOPTS}"\n'
"""Goes before a script that starts pytest: a wrong test must not end the run, whatever the repository's options say."""
WORST_FIRST: Final = ("failed", "error", "skipped", "xfailed", "passed")


def plugin() -> dict[str, bytes]:
    """Return the plug-in, as a file below TOOLS."""
    return {f"{PLUGIN}.py": Path(__file__).with_name("pytest_outcomes.py").read_bytes()}


def with_plugin(command: str, trial: Trial) -> str:
    """Return a shell command whose pytest, however it is started, loads the plug-in. Variables of the image are kept."""
    mixed = f"RL_AGENT_TEST_LIMIT_S={trial.options.test_limit_s:g} RL_AGENT_KEEP_GOING=1 " if trial.is_mixed else ""
    return (
        f'export {mixed}RL_AGENT_OUTCOMES={FILE} PYTHONPATH="{TOOLS}${{PYTHONPATH:+:$PYTHONPATH}}" '
        f'PYTEST_ADDOPTS="-p {PLUGIN}${{PYTEST_ADDOPTS:+ $PYTEST_ADDOPTS}}"\n{command}'
    )


async def read_outcomes(sandbox: Sandbox) -> dict[str, str]:
    """Return node id -> outcome, in the order of the run. Empty if pytest did not start, or its file is unreadable."""
    try:
        text = await sandbox.read_file(FILE, user="root", max_bytes=FILE_BYTES)
    except (FileNotFoundError, UnreadableError):
        return {}
    return await asyncio.to_thread(_fold, text)


def _fold(text: bytes) -> dict[str, str]:
    """Return the outcome of each test: the worst of the phases of its last attempt. A rerun starts with a set-up."""
    found: dict[str, str] = {}
    for line in io.BytesIO(text):
        if not line.startswith(b'["'):  # a cheap check first: the tests can write millions of other lines
            continue
        try:
            name, phase, outcome = json.loads(line)
        except (ValueError, TypeError, RecursionError):
            continue
        if not (isinstance(name, str) and isinstance(outcome, str)):
            continue
        if outcome == "failed" and phase != "call":
            outcome = "error"
        if outcome not in WORST_FIRST:  # a rerun
            continue
        before = "passed" if phase == "setup" else found.get(name, "passed")
        found[name] = min(before, outcome, key=WORST_FIRST.index)
    return found

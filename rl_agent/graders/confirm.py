"""Lets pytest itself confirm what a log says of its tests, where a data set's own script starts it.

A plug-in of ours joins the run through pytest's environment variables and writes each outcome, as really raised, to a
channel; a test that the log calls passed and the channel does not was forged.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rl_agent.graders.judge import TOOLS
from rl_agent.graders.names import PASSED
from rl_agent.sandboxes.base import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rl_agent.sandboxes.base import Sandbox

PLUGIN: Final = "rl_agent_pytest_channel"
CHANNEL: Final = "/tmp/rl_agent_channel"  # noqa: S108 (in the sandbox)
CHANNEL_BYTES: Final = 8 << 20
"""Some 60,000 tests say less. The file is the submission's as well: a longer one confirms nothing."""
EXPORTS: Final = (
    f'export PYTHONPATH="{TOOLS}${{PYTHONPATH:+:$PYTHONPATH}}" '
    f'PYTEST_ADDOPTS="-p {PLUGIN}${{PYTEST_ADDOPTS:+ $PYTEST_ADDOPTS}}" RL_AGENT_CHANNEL={CHANNEL}\n'
)
"""Goes before a shell command; what the image itself sets stays."""
_TAKEN: Final = ("PYTHONPATH=", "PYTEST_ADDOPTS", "python -I", "tox ")
"""A script with these keeps our variables from pytest."""


def starts_pytest(script: str) -> bool:
    """Whether the script starts pytest in a way that the plug-in can join."""
    return "pytest" in script and not any(word in script for word in _TAKEN)


def plugin() -> dict[str, str | bytes]:
    """The plug-in, as a file below TOOLS."""
    return {f"{PLUGIN}.py": Path(__file__).with_name("pytest_channel.py").read_bytes()}


async def told(sandbox: Sandbox) -> dict[str, str]:
    """Node id of a test -> the worst of its outcomes, as pytest told the plug-in.

    Empty if pytest never started, and where something else than the plug-in's file lies in its place.
    """
    try:
        text = await sandbox.read_file(CHANNEL, user="root", max_bytes=CHANNEL_BYTES)
    except (FileNotFoundError, UnreadableError):
        return {}
    return await asyncio.to_thread(_outcomes, text)


def _outcomes(text: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in io.BytesIO(text):
        if not line.startswith(
            b'["'
        ):  # a cheap look first: there may be millions of lines that the plug-in did not write
            continue
        try:
            name, outcome = json.loads(line)
        except (ValueError, TypeError, RecursionError):
            continue
        if isinstance(name, str) and isinstance(outcome, str) and outcome:
            found[name] = outcome if found.get(name, PASSED) == PASSED else found[name]
    return found


def forged(names: Sequence[str], outcomes: Sequence[str], said: Mapping[str, str]) -> list[str]:
    """Named tests that the log has as passed and pytest has not (a parser may shorten names, so base names are compared)."""
    confirmed = {_base(name) for name, outcome in said.items() if outcome == PASSED}
    passed = [name for name, outcome in zip(names, outcomes, strict=True) if outcome == PASSED]
    return [name for name in passed if _base(name) not in confirmed]


def _base(name: str) -> str:
    return re.split(r"::|\s\|\s", name.partition("[")[0])[-1].rpartition(".")[2].strip()

# ruff: noqa: UP006, UP035, PTH123, D103, TID251
"""A pytest plug-in for run scripts that start pytest themselves: writes each test's outcome, as really raised, to a channel.

Never imported by rl_agent: its text is put into the grading sandbox.
"""

import json
import os
from typing import Any, Iterator, List

import pytest

_CHANNEL = os.environ.get("RL_AGENT_CHANNEL", "")


def _say(entry: List[str]) -> None:
    with open(_CHANNEL, "a") as file:
        file.write(json.dumps(entry) + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: Any) -> None:
    _say(["session", ""])


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Iterator[None]:
    yield
    if call.excinfo is not None:
        _say([item.nodeid, "failed"])
    elif call.when == "call":
        _say([item.nodeid, "passed"])

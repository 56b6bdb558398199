# ruff: noqa: UP035, D103, TID251
"""A pytest plug-in that writes the outcome of each phase of each test to a file. Written for Python 3.6 and later.

Never imported by rl_agent: its text is put into the grading sandbox. It is not protected, and need not be: whoever forges its
file must know which tests of a mixed run are wrong.
"""

import json
import os
import signal
import threading
from typing import Any, Callable, Iterator

import pytest

_FILE = os.environ.get("RL_AGENT_OUTCOMES", "")
_LIMIT_S = float(os.environ.get("RL_AGENT_TEST_LIMIT_S") or 0)
_KEEPS_GOING = bool(os.environ.get("RL_AGENT_KEEP_GOING"))
_IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: Any) -> None:
    for name in ("RL_AGENT_OUTCOMES", "RL_AGENT_KEEP_GOING"):
        os.environ.pop(name, None)  # a pytest that a test starts says nothing
    if _KEEPS_GOING:
        config.option.maxfail = 0  # a wrong test must not end the run, whatever the command says


# Tests replace `open` and `json.dumps`, and their fixtures undo that only after the call was reported. Defaults stay.
def _write(row: Any, open: Any = open, dumps: Callable[[Any], str] = json.dumps) -> None:
    with open(_FILE, "a") as file:
        file.write(dumps(row) + "\n")


def pytest_runtest_logreport(report: Any) -> None:
    if _IS_WORKER or not _FILE:
        return  # the controller gets the worker's reports
    outcome = report.outcome
    if outcome == "skipped" and hasattr(report, "wasxfail"):
        outcome = "xfailed"
    _write([report.nodeid, report.when, outcome])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    left = signal.getitimer(signal.ITIMER_REAL)[0]
    is_limited = 0 < left < _LIMIT_S  # by a plug-in of the repository
    if not _LIMIT_S or is_limited or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        pytest.fail(f"longer than {_LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, _LIMIT_S, _LIMIT_S)  # again, since the end of a test may wait too
    yield
    signal.setitimer(signal.ITIMER_REAL, left)
    signal.signal(signal.SIGALRM, before)

# ruff: noqa: UP035, PTH123, D103, TID251
"""A pytest plug-in that writes the outcome of each phase of each test to a file. Written for Python 3.6 and later.

Never imported by rl_agent: its text is put into the grading sandbox. It is not protected, and need not be: whoever forges its
file must know which tests of a mixed run are wrong.
"""

import json
import os
import signal
import threading
from typing import Any, Iterator

import pytest

_FILE = os.environ.get("RL_AGENT_OUTCOMES", "")
_LIMIT_S = float(os.environ.get("RL_AGENT_TEST_LIMIT_S") or 0)


def pytest_runtest_logreport(report: Any) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        return  # the controller gets the worker's reports
    outcome = report.outcome
    if outcome == "skipped" and hasattr(report, "wasxfail"):
        outcome = "xfailed"
    with open(_FILE, "a") as file:
        file.write(json.dumps([report.nodeid, report.when, outcome]) + "\n")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    if not _LIMIT_S or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        pytest.fail(f"longer than {_LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, _LIMIT_S)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)

"""The adapter's access log has what failed and what was slow, and nothing else."""

from __future__ import annotations

import logging

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from rl_agent.adapters.access_log import SLOW_S, FailuresAndSlowOnes


@pytest.mark.parametrize(
    ("path", "status", "seconds", "told"),
    [
        ("/ok", 200, 1.0, []),
        ("/bad\x1b[2J", 401, 0.1, ["GET '/bad\\x1b[2J': 401 after 0.1 s"]),
        ("/slow", 200, SLOW_S + 1, ["GET '/slow': 200 after 601.0 s"]),
    ],
)
def test_errors_and_slow_requests_are_logged_and_successes_are_not(
    path: str, status: int, seconds: float, told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        FailuresAndSlowOnes(logging.getLogger("x"), "").log(
            make_mocked_request("GET", path), web.Response(status=status), seconds
        )
    assert [record.getMessage() for record in caplog.records] == told

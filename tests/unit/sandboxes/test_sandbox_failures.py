"""What is asked again, and when."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
import e2b
import pytest
from aiodocker import DockerError

from rl_agent.errors import ConfigError, SandboxError
from rl_agent.sandboxes.base import SandboxLostError
from rl_agent.sandboxes.e2b.remote import BusyError
from rl_agent.sandboxes.scripted.failures import Failure, again, failure_of

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Waits that were asked for, none of which happens."""
    asked: list[float] = []

    async def sleep(seconds: float) -> None:
        asked.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return asked


def failing(*errors: Exception) -> Callable[[], object]:
    left = list(errors)

    async def call() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return call


async def test_what_passes_is_asked_again_with_growing_waits_and_retry_after_is_heeded(waits: list[float]) -> None:
    errors = [aiohttp.ServerDisconnectedError(), e2b.RateLimitException("429"), BusyError("503: busy", "30")]
    assert await again(failing(*errors), what="it", retries=3) == "done"  # type: ignore[arg-type]
    assert 0.1 < waits[0] < 0.4
    assert 0.9 < waits[1] < 3.1
    assert waits[2] == 30.0


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (e2b.AuthenticationException("no"), SandboxError),
        (e2b.SandboxNotRunningException("gone"), SandboxLostError),
        (DockerError(404, "No such container: x"), SandboxLostError),
        (DockerError(400, "bad parameter"), SandboxError),
        (ConfigError("wrong"), ConfigError),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_does_not_pass_is_raised_at_once(
    error: Exception, raised: type[Exception], waits: list[float]
) -> None:
    with pytest.raises(raised):
        await again(failing(error), what="it", retries=3)  # type: ignore[arg-type]
    assert waits == []


async def test_at_the_end_the_error_says_how_often_it_was_asked(waits: list[float]) -> None:
    with pytest.raises(SandboxError, match=r"it: .*after 3 attempts"):
        await again(failing(*[OSError("broken")] * 9), what="it", retries=2)  # type: ignore[arg-type]
    assert len(waits) == 2


@pytest.mark.parametrize(
    ("status", "message", "failure"),
    [
        (500, "container x is not running", Failure.LOST),
        (409, "can only create exec sessions on running containers: container state improper", Failure.LOST),
        (500, "unable to find user nobody-here: no matching entries in passwd file", Failure.REFUSED),
        (404, "no such image", Failure.MISSING),
        (503, "busy", Failure.TRANSIENT),
        (0, "the output broke off", Failure.TRANSIENT),
        (429, "slow down", Failure.RATE_LIMITED),
        (403, "no", Failure.FORBIDDEN),
    ],
)
def test_dockers_errors_are_told_apart(status: int, message: str, failure: Failure) -> None:
    assert failure_of(DockerError(status, message)) is failure


def test_a_script_whose_shell_was_killed_is_another_thing_than_one_that_failed() -> None:
    for code, failure in ((137, Failure.TRANSIENT), (3, Failure.REFUSED)):
        error = e2b.CommandExitException(stderr="", stdout="", exit_code=code, error="")
        assert failure_of(error) is failure


def test_the_older_lines_words_for_too_many_requests_are_understood() -> None:
    assert failure_of(e2b.SandboxException("busy: The requests are being rate limited.")) is Failure.RATE_LIMITED
    assert failure_of(e2b.SandboxException("429: busy")) is Failure.RATE_LIMITED
    assert failure_of(e2b.SandboxException("something else")) is Failure.REFUSED

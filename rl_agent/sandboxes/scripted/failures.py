"""Classification of the errors of E2B's SDK and aiodocker, and retries.

Classes are compared by name, because they differ between releases of E2B's SDK: 2.20 uses httpx and httpcore, 2.63 uses pyqwest
and connectrpc.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

from rl_agent.errors import ConfigError, SandboxError
from rl_agent.sandboxes.base import SandboxLostError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)
T = TypeVar("T")


class Failure(StrEnum):
    """Kinds of failures."""

    TRANSIENT = "transient"
    """Failure of a network, proxy or busy server; the request may have succeeded."""
    RATE_LIMITED = "rate_limited"
    """Too many requests; this one had no effect."""
    LOST = "lost"
    """The sandbox is gone."""
    FORBIDDEN = "forbidden"
    """Invalid key, or unknown user."""
    MISSING = "missing"
    """File not found, or image not found at a boot."""
    REFUSED = "refused"
    """Invalid request, or no space left; a retry would not help."""


_BY_NAME: Final = {
    "SandboxNotRunningException": Failure.LOST,
    "SandboxNotFoundException": Failure.LOST,
    "RateLimitException": Failure.RATE_LIMITED,
    "AuthenticationException": Failure.FORBIDDEN,
    "ServiceBusyException": Failure.TRANSIENT,
    "NotFoundException": Failure.MISSING,
    "NotEnoughSpaceException": Failure.REFUSED,
    "InvalidArgumentException": Failure.REFUSED,
    "TemplateException": Failure.REFUSED,
    "GuestUnresponsiveException": Failure.REFUSED,
    "CommandExitException": Failure.REFUSED,
    "TimeoutException": Failure.TRANSIENT,
}
_BY_STATUS: Final = {
    401: Failure.FORBIDDEN,
    403: Failure.FORBIDDEN,
    404: Failure.MISSING,
    429: Failure.RATE_LIMITED,
    500: Failure.TRANSIENT,
    502: Failure.TRANSIENT,
    503: Failure.TRANSIENT,
    504: Failure.TRANSIENT,
}
_DOCKER_LOST: Final = (
    "no such container",
    "is not running",
    "container state improper",
    "running containers",
    "in a stopped container",
    "does not exist in database",
)
_DOCKER_REFUSED: Final = ("unable to find user", "no matching entries")
_STATUS: Final = re.compile(r"^(\d{3})\b")
KILLED: Final = 128
FIRST_WAIT_S: Final = 0.25
RATE_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 15.0
LONGEST_ASKED_S: Final = 120.0
"""Upper bound on a server's Retry-After."""


def failure_of(error: BaseException) -> Failure:
    """Return the kind of a client's error. Unknown classes come from its transport: transient."""
    if any(kind.__name__ == "DockerError" for kind in type(error).__mro__):
        return _of_docker(int(getattr(error, "status", 0)), str(error).lower())
    if (getattr(error, "exit_code", None) or 0) > KILLED:  # something killed the script's shell
        return Failure.TRANSIENT
    text = str(error)
    if "was not found" in text and "sandbox" in text.lower():
        return Failure.LOST
    for kind in type(error).__mro__:
        if kind.__name__ in _BY_NAME:
            return _BY_NAME[kind.__name__]
    status = getattr(error, "status_code", None) or (int(m[1]) if (m := _STATUS.match(text)) else None)
    if type(error).__name__ == "SandboxException" and "being rate limited" in text:  # SDK 2.20, without a status
        return Failure.RATE_LIMITED
    if type(error).__name__ == "SandboxException":
        return _BY_STATUS.get(status or 0, Failure.REFUSED)
    return Failure.TRANSIENT


def _of_docker(status: int, message: str) -> Failure:
    """Return the kind of an aiodocker.DockerError. Status 0 or 900: the connection broke."""
    if any(words in message for words in _DOCKER_LOST):
        return Failure.LOST
    if any(words in message for words in _DOCKER_REFUSED):
        return Failure.REFUSED
    return _BY_STATUS.get(status, Failure.TRANSIENT if status >= 500 or status == 0 else Failure.REFUSED)


def translated(error: BaseException, what: str) -> SandboxError | ConfigError:
    """Return our error for a client's error."""
    if isinstance(error, SandboxError | ConfigError):
        return error
    said = f"{what}: {type(error).__name__}: {str(error)[:600]}"
    match failure_of(error):
        case Failure.LOST:
            return SandboxLostError(said)
        case Failure.FORBIDDEN:
            return SandboxError(f"{said} Check the key (E2B_API_KEY), and that the user exists in the sandbox.")
        case _:
            return SandboxError(said)


async def again(call: Callable[[], Awaitable[T]], *, what: str, retries: int) -> T:
    """Send an idempotent request, with retries after temporary failures. Raises our errors."""
    for number in range(retries + 1):
        try:
            return await call()
        except Exception as error:  # the SDK raises plain Exception too
            failure = failure_of(error)
            if isinstance(error, SandboxError | ConfigError) or failure not in (
                Failure.TRANSIENT,
                Failure.RATE_LIMITED,
            ):
                raise translated(error, what) from error
            if number == retries:
                raise SandboxError(f"{translated(error, what)} (after {retries + 1} attempts)") from error
            first = RATE_WAIT_S if failure is Failure.RATE_LIMITED else FIRST_WAIT_S
            wait = min(LONGEST_WAIT_S, first * 2**number) * random.uniform(0.5, 1.5)  # noqa: S311 (no secret)
            wait = max(wait, min(LONGEST_ASKED_S, getattr(error, "retry_after_s", 0.0)))
            log.info("%s: %s (%s); retrying in %.1f s", what, type(error).__name__, failure, wait)
            await asyncio.sleep(wait)
    raise AssertionError("unreachable")

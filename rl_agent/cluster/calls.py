"""Awaiting Ray: an actor's error arrives as itself, and a lost actor as an infrastructure failure that names it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

import ray
from ray.exceptions import ObjectLostError, RayActorError, RayError, RayTaskError

from rl_agent.errors import InfraError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

END_S: Final = 15.0
"""How long the end of a cancelled call is waited for: what it leaves, such as a sandbox, is gone within 5 s."""


class LostActorError(InfraError):
    """A process of the run is gone, or the node that it was on."""


class Process(Protocol):
    """A process of a run whose methods can be called from this one."""

    async def call(self, method: str, *arguments: Any, ends: bool = False) -> Any:
        """Call a method. Raises what it raises, LostActorError when the process is gone.

        Cancelling the wait cancels the call; with `ends`, the cancelled call is waited for.
        """

    def kill(self) -> None:
        """End the process at once, with all that it started; safe to call twice."""


class Actor:
    """See `Process`: an actor of Ray's."""

    def __init__(self, handle: Any, who: str) -> None:
        self._handle = handle
        self.who = who

    async def call(self, method: str, *arguments: Any, ends: bool = False) -> Any:
        """See `Process`."""
        return await result(getattr(self._handle, method).remote(*arguments), self.who, ends=ends)

    def kill(self) -> None:
        """See `Process`."""
        with suppress(RayError):
            ray.kill(self._handle)


def share(value: Any) -> Any:
    """A large argument of calls to several processes: Ray copies it once, not once a call, and each node fetches it once."""
    return ray.put(value)


async def stop(up: Sequence[Process], others: Sequence[Process]) -> None:
    """Let each process that is up end what it has started. One that is not, and may never be, is not waited for."""
    for process in others:
        process.kill()
    await asyncio.gather(*(process.call("stop") for process in up), return_exceptions=True)


async def result(reference: Awaitable[Any], who: str, *, ends: bool = False) -> Any:
    """What a remote call returns. Cancelling the wait cancels the call, and with `ends` waits for its end."""
    try:
        return await reference
    except RayTaskError as error:
        cause = error.cause
        if isinstance(cause, Exception):
            raise cause from error
        raise
    except ObjectLostError as error:
        raise LostActorError(f"the node of {who} was lost, and with it an answer that was not yet fetched") from error
    except RayActorError as error:
        raise LostActorError(
            f"the process of {who} was lost: {str(error).splitlines()[0].rstrip('.')}. Its log is in the run folder's logs/."
        ) from error
    except RayError as error:
        raise InfraError(f"Ray could not run {who}: {error}") from error
    except BaseException:
        if isinstance(reference, ray.ObjectRef):
            ray.cancel(reference, recursive=True)
            if ends:
                await _ended(reference)
        raise


async def _ended(reference: Any) -> None:
    with suppress(RayError, asyncio.CancelledError, TimeoutError):
        async with asyncio.timeout(END_S):
            await asyncio.wrap_future(reference.future())

"""Calls to the processes of a run. An actor's error is raised unchanged; a lost actor raises an error that names it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, overload

import ray
from ray.exceptions import ObjectLostError, RayActorError, RayError, RayTaskError

from rl_agent.errors import InfraError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

END_S: Final = 15.0
"""Time limit for the end of a cancelled call. Its sandbox is closed within 5 s."""

P = ParamSpec("P")
R = TypeVar("R")


class LostActorError(InfraError):
    """Loss of a process of the run, or of its node."""


class RemoteProcess(Protocol):
    """A process of the run whose methods can be called from this one. Use `remote` for calls that mypy can check."""

    async def call(self, method: str, *arguments: Any, ends: bool = False) -> Any:
        """Call a method. Raises the errors of the method, or LostActorError if the process is lost.

        Cancelling the wait cancels the call. With `ends`, a cancelled wait lasts until the call has ended.
        """

    def kill(self) -> None:
        """Kill the process and everything that it started. A second call does nothing."""


class Actor:
    """A Ray actor as a `RemoteProcess`."""

    def __init__(self, handle: Any, who: str) -> None:
        self._handle = handle
        self.who = who

    async def call(self, method: str, *arguments: Any, ends: bool = False) -> Any:
        """See `RemoteProcess`."""
        return await result(getattr(self._handle, method).remote(*arguments), self.who, ends=ends)

    def kill(self) -> None:
        """See `RemoteProcess`."""
        with suppress(RayError):
            ray.kill(self._handle)


@overload
def remote(
    process: RemoteProcess, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], *, ends: bool = False
) -> Callable[P, Coroutine[Any, Any, R]]: ...


@overload
def remote(
    process: RemoteProcess, method: Callable[Concatenate[Any, P], R], *, ends: bool = False
) -> Callable[P, Coroutine[Any, Any, R]]: ...


def remote(
    process: RemoteProcess, method: Callable[..., Any], *, ends: bool = False
) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return `method` (of the actor's class, async or not) bound to a process, for positional arguments.

    See `RemoteProcess.call`.
    """

    async def call(*arguments: Any, **named: Any) -> Any:
        assert not named, f"{method.__name__}: remote calls take positional arguments only"
        return await process.call(method.__name__, *arguments, ends=ends)

    return call


def share(value: Any) -> Any:
    """Return a large argument in a form that Ray copies once, not once per call. Each node fetches it once."""
    return ray.put(value)


async def stop(up: Sequence[RemoteProcess], others: Sequence[RemoteProcess]) -> None:
    """Stop the processes that are `up` and let them clean up. Kill the `others`, which may never come up."""
    for process in others:
        process.kill()
    await asyncio.gather(*(process.call("stop") for process in up), return_exceptions=True)


async def result(reference: Awaitable[Any], who: str, *, ends: bool = False) -> Any:
    """Return the result of a remote call. Cancelling the wait cancels the call. See `RemoteProcess.call` for `ends`."""
    try:
        return await reference
    except RayTaskError as error:
        cause = error.cause
        if isinstance(cause, Exception):
            raise cause from error
        raise
    except ObjectLostError as error:
        raise LostActorError(f"the node of {who} was lost with a result that was not fetched yet") from error
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

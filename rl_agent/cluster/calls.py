"""Awaiting Ray: an actor's error arrives as itself, and a lost actor as an infrastructure failure that names it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from rl_agent.errors import InfraError

if TYPE_CHECKING:
    from collections.abc import Awaitable


async def result(reference: Awaitable[Any], who: str) -> Any:
    """What a remote call returns. Cancelling the wait cancels the call."""
    try:
        return await reference
    except RayTaskError as error:
        cause = error.cause
        if isinstance(cause, Exception):
            raise cause from error
        raise
    except RayActorError as error:
        raise InfraError(
            f"the process of {who} was lost: {str(error).splitlines()[0]}. Its log is in the run folder's logs/."
        ) from error
    except RayError as error:
        raise InfraError(f"Ray could not run {who}: {error}") from error
    except BaseException:
        if isinstance(reference, ray.ObjectRef):
            ray.cancel(reference, recursive=True)
        raise

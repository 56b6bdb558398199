"""Which requests are written to the log: those that failed and those that took long. Successes are counted in the session's statistics."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from aiohttp.abc import AbstractAccessLogger
from typing_extensions import override

if TYPE_CHECKING:
    from aiohttp import web

log = logging.getLogger(__name__)

SLOW_S: Final = 600.0
"""A generation may take minutes; one that takes longer than this points to an engine in trouble."""
FAILED: Final = 400


class FailuresAndSlowOnes(AbstractAccessLogger):
    """Aiohttp makes one a connection."""

    @override
    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Write one line, or none. What a client sent is quoted and cut; its token, which is in a header, stays out."""
        if response.status >= FAILED or time >= SLOW_S:
            log.warning("%s %.200r: %d after %.1f s", request.method, request.path, response.status, time)

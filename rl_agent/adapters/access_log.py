"""Access log of failed and slow requests. Successful requests are only counted in the session's statistics."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from aiohttp.abc import AbstractAccessLogger
from typing_extensions import override

if TYPE_CHECKING:
    from aiohttp import web

log = logging.getLogger(__name__)

SLOW_S: Final = 600.0
"""A generation may take minutes. A longer request points to a problem in the engine."""
FAILED: Final = 400


class FailuresAndSlowOnes(AbstractAccessLogger):
    """Logs failed and slow requests. Created by aiohttp once per connection."""

    @override
    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Log a failed or slow request with a quoted, truncated path. The headers hold the token and are left out."""
        if response.status >= FAILED or time >= SLOW_S:
            log.warning("%s %.200r: %d after %.1f s", request.method, request.path, response.status, time)

"""The boxes of a gateway: created once per idempotency key, found by id, removed after their lifetime."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from rl_agent.errors import ImageError, RlAgentError, SandboxError
from rl_agent.sandboxes.base import SandboxLostError
from rl_agent.sandboxes.gateway.wire import HttpError, not_found, same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from aiohttp import web

    from rl_agent.config.sandbox import Network
    from rl_agent.sandboxes.base import Asset, Limits, Sandbox, SandboxProvider
    from rl_agent.sandboxes.gateway.running import Running

log = logging.getLogger(__name__)
KEYS_KEPT: Final = 10_000
TEARDOWN_S: Final = 30.0
LAST_WORDS_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A client's request for a box."""

    template: str
    image: str
    lifetime_s: float
    metadata: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    assets: Sequence[Asset] = ()
    network: Network | None = None
    limits: Limits | None = None


class Box:
    """One sandbox of the gateway."""

    def __init__(self, order: Order, sandbox: Sandbox, group: asyncio.TaskGroup) -> None:
        self.order = order
        self.sandbox = sandbox
        self.id = secrets.token_hex(10)
        self.token = secrets.token_hex(16)
        self.started = time.time()
        self.processes: dict[int, Running] = {}
        self.gone = asyncio.Event()
        self._group = group
        self._pumps: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()
        self._timer: asyncio.Timeout | None = None
        self._ends = self.started + order.lifetime_s

    def run(self, running: Running) -> None:
        """Forward a process's output until it exits or the box ends."""
        self.processes[running.process.pid] = running
        self._pumps.add(self._group.create_task(self._pump(running)))

    async def end_processes(self) -> None:
        """Kill all processes and wait briefly for the rest of their output."""
        for running in list(self.processes.values()):
            running.process.kill()
        if self._pumps:
            _, late = await asyncio.wait(self._pumps, timeout=LAST_WORDS_S)
            for task in late:
                task.cancel()

    async def _pump(self, running: Running) -> None:
        try:
            await running.pump()
        finally:
            self.processes.pop(running.process.pid, None)
            self._pumps -= {task for task in self._pumps if task is asyncio.current_task()}

    async def until_over(self) -> None:
        """Wait for the end of the lifetime, or for `close`."""
        try:
            async with asyncio.timeout(self._ends - time.time()) as self._timer:
                await self._closing.wait()
        except TimeoutError:
            if not self._closing.is_set():
                self._closing.set()

    def set_lifetime(self, seconds: float) -> None:
        """Set the remaining lifetime."""
        self._ends = time.time() + seconds
        if self._timer is not None and not self.over:
            self._timer.reschedule(asyncio.get_running_loop().time() + seconds)

    def close(self) -> None:
        """Start the removal."""
        self._closing.set()

    @property
    def over(self) -> bool:
        """Whether the box is being removed."""
        return self._closing.is_set()

    @property
    def remaining_s(self) -> float:
        """Remaining lifetime."""
        return self._ends - time.time()

    def describe(self) -> dict[str, Any]:
        """Return the control plane's description."""
        return {
            "templateID": self.order.template,
            "alias": self.order.template,
            "sandboxID": self.id,
            "clientID": "rl-agent",
            "startedAt": datetime.fromtimestamp(self.started, UTC).isoformat(),
            "endAt": datetime.fromtimestamp(self._ends, UTC).isoformat(),
            "cpuCount": 1,
            "memoryMB": 1024,
            "diskSizeMB": 1024,
            "metadata": dict(self.order.metadata),
            "state": "running",
            "envdVersion": ENVD_VERSION,
        }


ENVD_VERSION: Final = "0.6.4"


class Boxes:
    """All boxes. Async context: they are removed at its end."""

    def __init__(
        self, provider: SandboxProvider, *, max_boxes: int, max_lifetime_s: float, ports: Sequence[int]
    ) -> None:
        """`ports`: of this host, reachable from every box."""
        self._provider = provider
        self._max_boxes = max_boxes
        self._max_lifetime_s = max_lifetime_s
        self._ports = ports
        self._boxes: dict[str, Box] = {}
        self._orders: dict[str, asyncio.Future[Box]] = {}
        self._booting = 0
        self._stack = AsyncExitStack()
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Boxes:
        await self._provider.sweep()
        await self._stack.enter_async_context(self._group)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for box in list(self._boxes.values()):
            box.close()
        await self._stack.aclose()

    def all(self) -> list[Box]:
        """Return the live boxes, oldest first."""
        return [box for box in self._boxes.values() if not box.over]

    def get(self, box_id: str) -> Box:
        """Return a live box. Raises the error of E2B's proxy if there is none."""
        box = self._boxes.get(box_id)
        if box is None or box.over:
            raise not_found(box_id)
        return box

    def of(self, request: web.Request) -> Box:
        """Return the box that a data-plane request names. Raises HttpError if its token is wrong."""
        box_id = request.headers.get("E2b-Sandbox-Id")
        if box_id is None:  # the host name may have it: <port>-<id>.<domain>
            box_id = request.host.partition(".")[0].partition("-")[2]
        if not box_id:
            raise not_found("the request names none (E2b-Sandbox-Id)")
        box = self.get(box_id)
        if not same(request.headers.get("X-Access-Token", ""), box.token):
            raise HttpError(401, "the sandbox's access token (X-Access-Token) is missing or invalid")
        return box

    async def create(self, order: Order, key: str | None) -> Box:
        """Boot a box. Requests with the same key get the same box."""
        if key is None:
            return await asyncio.shield(self._begin(order))
        ready = self._orders.get(key)
        if ready is None or (ready.done() and (ready.cancelled() or ready.exception() is not None)):
            ready = self._begin(order)
            self._orders[key] = ready
            for old in list(self._orders)[:-KEYS_KEPT]:
                del self._orders[old]
        return await asyncio.shield(ready)

    def _begin(self, order: Order) -> asyncio.Future[Box]:
        if len(self._boxes) + self._booting >= self._max_boxes:
            raise HttpError(429, f"the maximum of {self._max_boxes} boxes is reached (gateway.max_boxes)")
        ready: asyncio.Future[Box] = asyncio.get_running_loop().create_future()
        ready.add_done_callback(_seen)
        self._booting += 1
        self._group.create_task(self._hold(order, ready))
        return ready

    async def _hold(self, order: Order, ready: asyncio.Future[Box]) -> None:
        """Boot a box and keep it until its end. Only its client gets its errors."""
        box: Box | None = None
        try:
            boot = self._provider.boot(
                order.image,
                assets=order.assets,
                lifetime_s=self._max_lifetime_s,
                network=order.network,
                limits=order.limits,
                labels=order.metadata,
            )
            async with boot as sandbox:
                for port in self._ports:
                    await sandbox.expose(port)
                async with asyncio.TaskGroup() as group:
                    box = Box(order, sandbox, group)
                    self._boxes[box.id] = box
                    self._booting -= 1
                    ready.set_result(box)
                    await box.until_over()
                    await box.end_processes()
        except Exception as error:
            if not isinstance(error, RlAgentError):
                log.exception("internal error in box %s", box.id if box else f"of image {order.image!r}")
            if not ready.done():
                status = 404 if isinstance(error, ImageError) else 500
                ready.set_exception(HttpError(status, str(error) or repr(error)))
        finally:
            if box is None:
                self._booting -= 1
                if not ready.done():
                    ready.cancel()
            else:
                box.close()
                self._boxes.pop(box.id, None)
                box.gone.set()

    async def remove(self, box: Box) -> None:
        """Remove a box and wait until it is gone."""
        box.close()
        async with asyncio.timeout(TEARDOWN_S):
            await box.gone.wait()


def _seen(future: asyncio.Future[Box]) -> None:
    """Retrieve the exception, so that asyncio does not log it if the client has disconnected."""
    if not future.cancelled():
        _ = future.exception()


@contextmanager
def refusing(box: Box, refusal: Callable[[str], Exception]) -> Iterator[None]:
    """Turn errors of the box's sandbox into answers: `lost` for a lost sandbox, `refusal(text)` for any other error."""
    try:
        yield
    except SandboxLostError as error:
        raise lost(box, error) from error
    except SandboxError as error:
        raise refusal(str(error)) from error


def lost(box: Box, error: SandboxLostError) -> HttpError:
    """Close a box whose sandbox is gone; return the answer to its client."""
    box.close()
    return HttpError(502, f"The sandbox was not found: {box.id} ({error})")

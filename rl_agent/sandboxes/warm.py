"""Pool of sandboxes that are booted ahead, so that the next rollout with the same image does not wait.

Useful if boots are slow and images repeat. The pool runs a command in a sandbox before it hands it out, and drops dead ones.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rl_agent.errors import RlAgentError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from types import TracebackType

    from rl_agent.config.sandbox import Network
    from rl_agent.sandboxes.base import Asset, Limits, Sandbox, SandboxProvider

log = logging.getLogger(__name__)
IDLE_S: Final = 600.0
"""Longest time in the pool. Lifetimes are longer than requested by this much."""
CHECK_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """Options that make sandboxes interchangeable."""

    image: str
    assets: tuple[Asset, ...]
    lifetime_s: float
    network: Network | None
    limits: Limits | None


@dataclass(slots=True, kw_only=True, eq=False)
class _Held:
    """A pooled sandbox and the state of the task that holds it."""

    kind: _Kind
    sandbox: Sandbox | None = None
    booted: float = 0.0
    over: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def fresh(self) -> bool:
        """Whether the sandbox has booted and its remaining lifetime is long enough."""
        return self.sandbox is not None and not self.gone.is_set() and time.monotonic() - self.booted < IDLE_S

    async def end(self) -> None:
        self.over.set()
        await self.gone.wait()


class WarmPool:
    """Provider with at most `size` idle sandboxes of another one. Async context: they are removed at its end."""

    def __init__(self, provider: SandboxProvider, *, size: int) -> None:
        self._provider = provider
        self._size = size
        self._idle: deque[_Held] = deque()
        self._asked: dict[_Kind, None] = {}
        """The last `size` kinds that were requested, newest last. Agents and graders use two kinds per image."""
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> WarmPool:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._size = 0
        for held in self._idle:
            held.over.set()
        # The group would wrap the caller's error. It must see a cancellation, which may be its own.
        cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        await (self._group.__aexit__(kind, error, trace) if cancelled else self._group.__aexit__(None, None, None))

    @asynccontextmanager
    async def boot(
        self,
        image: str,
        *,
        assets: Sequence[Asset] = (),
        lifetime_s: float,
        network: Network | None = None,
        limits: Limits | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Sandbox]:
        """See `SandboxProvider.boot`. A sandbox from the pool has no `labels`."""
        kind = _Kind(image=image, assets=tuple(assets), lifetime_s=lifetime_s, network=network, limits=limits)
        held = await self._take(kind)
        self._refill(kind)
        if held is None or held.sandbox is None:
            async with self._provider.boot(
                image, assets=assets, lifetime_s=lifetime_s, network=network, limits=limits, labels=labels
            ) as sandbox:
                yield sandbox
            return
        timer = asyncio.get_running_loop().call_later(lifetime_s, held.over.set)
        try:
            yield held.sandbox
        finally:
            timer.cancel()
            await asyncio.shield(held.end())

    async def _take(self, kind: _Kind) -> _Held | None:
        """Return an idle sandbox that has just run a command, if there is one."""
        while (held := next((held for held in self._idle if held.kind == kind and held.fresh), None)) is not None:
            self._idle.remove(held)
            try:
                assert held.sandbox is not None
                if (await held.sandbox.exec("true", user="root", timeout=CHECK_S)).exit_code == 0:
                    return held
            except RlAgentError as error:
                log.info("an idle sandbox was dead: %s", error)
            except BaseException:
                held.over.set()
                raise
            held.over.set()
        return None

    def _refill(self, kind: _Kind) -> None:
        """Boot this kind's share of the pool. Drop stale sandboxes and those beyond the share of their kind."""
        self._asked.pop(kind, None)
        self._asked[kind] = None
        for old in list(self._asked)[: -self._size or None]:
            del self._asked[old]
        share = self._size // max(1, len(self._asked))
        kept: Counter[_Kind] = Counter()
        for held in list(self._idle):
            stale = held.gone.is_set() or (held.sandbox is not None and not held.fresh)
            if stale or held.kind not in self._asked or kept[held.kind] >= share:
                self._drop(held)
            else:
                kept[held.kind] += 1
        for _ in range(share - kept[kind]):
            held = _Held(kind=kind)
            self._idle.append(held)
            self._group.create_task(self._hold(held))

    def _drop(self, held: _Held) -> None:
        held.over.set()
        self._idle.remove(held)

    async def _hold(self, held: _Held) -> None:
        """Boot a sandbox and keep it until `over`. A failed boot is only logged: the next rollout boots its own."""
        kind = held.kind
        try:
            async with self._provider.boot(
                kind.image,
                assets=kind.assets,
                lifetime_s=kind.lifetime_s + IDLE_S,
                network=kind.network,
                limits=kind.limits,
            ) as held.sandbox:
                held.booted = time.monotonic()
                await held.over.wait()
        except RlAgentError as error:
            log.info("a sandbox could not be booted ahead: %s", error)
        finally:
            held.gone.set()

    async def sweep(self) -> int:
        """See `SandboxProvider.sweep`."""
        return await self._provider.sweep()

"""Counts and times what a provider does, for a run's metrics."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from rl_agent.errors import RlAgentError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from pathlib import Path

    from rl_agent.config.sandbox import Network
    from rl_agent.sandboxes.base import Asset, ExecResult, Limits, Sandbox, SandboxProvider


class Meter:
    """Sums since they were last taken; all of them can be added up over processes.

    `boots`, `execs`, `teardowns`, `writes`, `reads`, `exposes`, and `boot_s` and so on: how many ended well, and their seconds
    together. `exec_timeouts`. `failures/<class>`: errors that callers saw, by the name of their class.
    """

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Count and time one `boot`, `exec` or `teardown`."""
        started = time.perf_counter()
        try:
            yield
        except RlAgentError as error:
            self.count(f"failures/{type(error).__name__}")
            raise
        self.count(f"{what}s")
        self._seconds[f"{what}_s"] = self._seconds.get(f"{what}_s", 0.0) + time.perf_counter() - started

    def count(self, what: str) -> None:
        """One more of these."""
        self._sums[what] += 1

    def take(self) -> dict[str, float]:
        """The sums since this was last called."""
        taken = {**self._sums, **self._seconds}
        self._sums, self._seconds = Counter(), {}
        return taken


class MeteredProvider:
    """See `SandboxProvider`: another provider, measured."""

    def __init__(self, provider: SandboxProvider, meter: Meter) -> None:
        self._provider = provider
        self._meter = meter

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
    ) -> AsyncIterator[MeteredSandbox]:
        """See `SandboxProvider.boot`."""
        booting = self._provider.boot(
            image, assets=assets, lifetime_s=lifetime_s, network=network, limits=limits, labels=labels
        )
        async with AsyncExitStack() as stack:
            with self._meter.timed("boot"):
                sandbox = await stack.enter_async_context(booting)
            yield MeteredSandbox(sandbox, self._meter)
            with self._meter.timed("teardown"):
                await stack.aclose()

    async def sweep(self) -> int:
        """See `SandboxProvider.sweep`."""
        return await self._provider.sweep()


class MeteredSandbox:
    """See `Sandbox`: another sandbox, measured."""

    def __init__(self, sandbox: Sandbox, meter: Meter) -> None:
        self._sandbox = sandbox
        self._meter = meter

    @property
    def id(self) -> str:
        """See `Sandbox.id`."""
        return self._sandbox.id

    async def exec(
        self,
        cmd: str,
        *,
        user: str = "agent",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bytes | None = None,
        timeout: float,
        check: bool = False,
    ) -> ExecResult:
        """See `Sandbox.exec`."""
        with self._meter.timed("exec"):
            result = await self._sandbox.exec(
                cmd, user=user, env=env, cwd=cwd, stdin=stdin, timeout=timeout, check=check
            )
        if result.timed_out:
            self._meter.count("exec_timeouts")
        return result

    async def write_file(
        self, path: str, content: bytes | str | Path, *, user: str = "agent", mode: int | None = None
    ) -> None:
        """See `Sandbox.write_file`."""
        with self._meter.timed("write"):
            await self._sandbox.write_file(path, content, user=user, mode=mode)

    async def read_file(self, path: str, *, user: str = "agent", max_bytes: int | None = None) -> bytes:
        """See `Sandbox.read_file`."""
        with self._meter.timed("read"):
            return await self._sandbox.read_file(path, user=user, max_bytes=max_bytes)

    async def expose(self, port: int) -> str:
        """See `Sandbox.expose`."""
        with self._meter.timed("expose"):
            return await self._sandbox.expose(port)


def sandbox_metrics(sums: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """What meters counted, under the metric names `sandbox/...`: counts, and mean seconds a boot, command and teardown."""
    total: Counter[str] = Counter()
    for taken in sums:
        total.update(taken)
    metrics = {f"sandbox/{name}": float(value) for name, value in total.items() if not name.endswith("_s")}
    for what in ("boot", "exec", "teardown"):
        if count := total[f"{what}s"]:
            metrics[f"sandbox/{what}_seconds_mean"] = total[f"{what}_s"] / count
    return metrics

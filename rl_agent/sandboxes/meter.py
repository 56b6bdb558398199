"""Counts and durations of sandbox operations, for a run's metrics."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from rl_agent.errors import RlAgentError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from pathlib import Path

    from rl_agent.sandboxes.base import ExecResult, Sandbox, SandboxProvider


class Meter:
    """Sums since the last `take`, which can be added up over processes.

    `boots`, `execs`, `teardowns`, `writes`, `reads`, `exposes`: successful operations. `boot_s` and so on: their total seconds.
    `exec_timeouts`. `failures/<class>`: errors that callers saw, by class name.
    """

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Count and time one operation."""
        started = time.perf_counter()
        try:
            yield
        except RlAgentError as error:
            self.count(f"failures/{type(error).__name__}")
            raise
        self.count(f"{what}s")
        self._seconds[f"{what}_s"] = self._seconds.get(f"{what}_s", 0.0) + time.perf_counter() - started

    def count(self, what: str) -> None:
        """Add one to a counter."""
        self._sums[what] += 1

    def take(self) -> dict[str, float]:
        """Return the sums since the last call and reset them."""
        taken = {**self._sums, **self._seconds}
        self._sums, self._seconds = Counter(), {}
        return taken


class MeteredProvider:
    """Provider that measures another one, see `SandboxProvider`."""

    def __init__(self, provider: SandboxProvider, meter: Meter) -> None:
        self._provider = provider
        self._meter = meter

    @asynccontextmanager
    async def boot(self, image: str, **options: Any) -> AsyncIterator[MeteredSandbox]:
        """See `SandboxProvider.boot`."""
        async with AsyncExitStack() as stack:
            with self._meter.timed("boot"):
                sandbox = await stack.enter_async_context(self._provider.boot(image, **options))
            yield MeteredSandbox(sandbox, self._meter)
            with self._meter.timed("teardown"):
                await stack.aclose()

    async def sweep(self) -> int:
        """See `SandboxProvider.sweep`."""
        return await self._provider.sweep()


class MeteredSandbox:
    """Sandbox that measures another one, see `Sandbox`."""

    def __init__(self, sandbox: Sandbox, meter: Meter) -> None:
        self._sandbox = sandbox
        self._meter = meter

    @property
    def id(self) -> str:
        """See `Sandbox.id`."""
        return self._sandbox.id

    async def exec(self, cmd: str, **options: Any) -> ExecResult:
        """See `Sandbox.exec`."""
        with self._meter.timed("exec"):
            result = await self._sandbox.exec(cmd, **options)
        if result.timed_out:
            self._meter.count("exec_timeouts")
        return result

    async def write_file(self, path: str, content: bytes | str | Path, **options: Any) -> None:
        """See `Sandbox.write_file`."""
        with self._meter.timed("write"):
            await self._sandbox.write_file(path, content, **options)

    async def read_file(self, path: str, **options: Any) -> bytes:
        """See `Sandbox.read_file`."""
        with self._meter.timed("read"):
            return await self._sandbox.read_file(path, **options)

    async def expose(self, port: int) -> str:
        """See `Sandbox.expose`."""
        with self._meter.timed("expose"):
            return await self._sandbox.expose(port)


def sandbox_metrics(sums: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the metrics `sandbox/...` of several meters: counts, and mean seconds per boot, command and teardown."""
    total: Counter[str] = Counter()
    for taken in sums:
        total.update(taken)
    metrics = {f"sandbox/{name}": float(value) for name, value in total.items() if not name.endswith("_s")}
    for what in ("boot", "exec", "teardown"):
        if count := total[f"{what}s"]:
            metrics[f"sandbox/{what}_seconds_mean"] = total[f"{what}_s"] / count
    return metrics

"""How fast sandboxes are: `python -m benchmarks.sandbox --json`. Needs root; everything runs on this machine."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
from e2b import AsyncSandbox

from rl_agent import secrets
from rl_agent.sandboxes.e2b.provider import E2BSandboxConfig
from rl_agent.sandboxes.local.provider import LocalSandboxConfig

if TYPE_CHECKING:
    from rl_agent.sandboxes.base import SandboxProvider

BOOTS: Final = 15
EXECS: Final = 30
CROWD: Final = 64
COMMANDS: Final = 50
BIG: Final = 100_000_000
KEY: Final = "e2b_" + "0" * 40
ROOT: Final = Path(__file__).parent.parent


async def measure_local(folder: Path) -> dict[str, float]:
    """Boot, exec and teardown one by one; many at once; memory of idle ones."""
    provider = LocalSandboxConfig(state_dir=str(folder / "local"), nice=0).build()
    boots, execs, ends = [], [], []
    async with provider.boot("host", lifetime_s=600):  # its helper process stays, as in a run
        for _ in range(BOOTS):
            stack = AsyncExitStack()
            started = time.perf_counter()
            sandbox = await stack.enter_async_context(provider.boot("host", lifetime_s=600))
            booted = time.perf_counter()
            for _ in range(EXECS // BOOTS):
                begun = time.perf_counter()
                await sandbox.exec("true", timeout=60)
                execs.append(time.perf_counter() - begun)
            ending = time.perf_counter()
            await stack.aclose()
            boots.append(booted - started)
            ends.append(time.perf_counter() - ending)
    started = time.perf_counter()
    await asyncio.gather(*[_cycle(provider) for _ in range(CROWD)])
    cycle = time.perf_counter() - started
    async with AsyncExitStack() as stack:
        before = _rss()
        for _ in range(16):
            await stack.enter_async_context(provider.boot("host", lifetime_s=600))
        idle = (_rss() - before) / 16
    return {
        "boot_ms_p50": _ms(boots),
        "exec_ms_p50": _ms(execs),
        "teardown_ms_p50": _ms(ends),
        "cycle_64_s": round(cycle, 2),
        "idle_rss_mb": round(idle / 2**20, 2),
    }


async def _cycle(provider: SandboxProvider) -> None:
    async with provider.boot("host", lifetime_s=600) as sandbox:
        await sandbox.exec("sleep 2", timeout=60, check=True)


def _rss() -> int:
    """Of everything below this process; shared pages count for each."""
    return sum(process.memory_info().rss for process in psutil.Process().children(recursive=True))


async def measure_gateway(folder: Path) -> dict[str, float]:
    """The real SDK against the gateway as a user starts it."""
    options = [f"gateway.assets_dir={folder}/assets", f"sandbox.state_dir={folder}/gateway", "sandbox.nice=0"]
    command = [sys.executable, "-m", "rl_agent.sandboxes.gateway", "gateway.port=0", *options]
    secrets.set_for_children("E2B_API_KEY", KEY)
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        url = (await process.stdout.readline()).decode().split()[1]
        return await _through(url, folder, process.pid)
    finally:
        process.terminate()
        await process.wait()


async def _through(url: str, folder: Path, pid: int) -> dict[str, float]:
    connection: dict[str, Any] = {"api_url": url, "sandbox_url": url, "api_key": KEY}
    creates = []
    for _ in range(BOOTS):
        started = time.perf_counter()
        sandbox = await AsyncSandbox.create("base", timeout=600, **connection)
        creates.append(time.perf_counter() - started)
        await sandbox.kill()
    sandbox = await AsyncSandbox.create("base", timeout=600, **connection)
    started = time.perf_counter()
    await asyncio.gather(*[sandbox.commands.run("true") for _ in range(COMMANDS)])
    commands = time.perf_counter() - started
    big = folder / "big"
    big.write_bytes(os.urandom(1 << 20) * (BIG >> 20))
    size = big.stat().st_size
    with big.open("rb") as content:
        await sandbox.files.write("/tmp/big", io.BufferedReader(content.raw), request_timeout=600)
    received = 0
    async for chunk in await sandbox.files.read("/tmp/big", format="stream", request_timeout=600):
        received += len(chunk)
    assert received == size, f"{received} of {size} bytes came back"
    peak = _peak_kb(pid)
    await sandbox.kill()
    provider = E2BSandboxConfig(api_url=url, state_dir=str(folder / "e2b")).build()
    execs = []
    async with provider.boot("host", lifetime_s=600) as booted:
        for _ in range(EXECS):
            started = time.perf_counter()
            await booted.exec("true", timeout=60)
            execs.append(time.perf_counter() - started)
    return {
        "create_ms_p50": _ms(creates),
        "commands_50_s": round(commands, 2),
        "peak_rss_mb_100mb": round(peak / 1024, 1),
        "provider_exec_ms_p50": _ms(execs),
        "client_peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def _peak_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def _ms(seconds: list[float]) -> float:
    return round(1000 * statistics.median(seconds), 1)


async def _all() -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as name:
        return {"local": await measure_local(Path(name)), "e2b_gateway": await measure_gateway(Path(name))}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    as_json = parser.parse_args().json
    figures = asyncio.run(_all())
    if as_json:
        print(json.dumps(figures))
        return
    for part, values in figures.items():
        print(part, *(f"{name}={value}" for name, value in values.items()), sep="\n  ")


if __name__ == "__main__":
    main()

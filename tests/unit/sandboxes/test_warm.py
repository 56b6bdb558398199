"""Sandboxes booted ahead: handed out alive, each once, and gone at the end."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.errors import SandboxError
from rl_agent.sandboxes.local.helper import kill
from rl_agent.sandboxes.meter import Meter, MeteredProvider
from rl_agent.sandboxes.warm import WarmPool
from tests.local import local_provider, needs_root

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rl_agent.sandboxes.base import SandboxProvider

pytestmark = needs_root


async def until_idle(pool: WarmPool, count: int) -> list[Any]:
    async with asyncio.timeout(60):
        while len(found := [held.sandbox for held in pool._idle if held.fresh]) != count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return found


class Counting:
    """A provider that counts its boots."""

    def __init__(self, provider: SandboxProvider) -> None:
        self._provider = provider
        self.boots = 0

    def boot(self, image: str, **options: Any) -> Any:
        self.boots += 1
        return self._provider.boot(image, **options)

    async def sweep(self) -> int:
        return await self._provider.sweep()


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[WarmPool]:
    async with WarmPool(local_provider(tmp_path / "state"), size=2) as pool:
        yield pool
    assert list((tmp_path / "state").iterdir()) == []


async def test_the_next_sandbox_of_a_kind_is_one_that_was_booted_ahead_and_each_is_used_once(pool: WarmPool) -> None:
    async with pool.boot("host", lifetime_s=60) as first:
        await first.write_file("/tmp/used", b"")
    ahead = {sandbox.id for sandbox in await until_idle(pool, 2)}
    assert first.id not in ahead
    async with pool.boot("host", lifetime_s=60) as second, pool.boot("host", lifetime_s=60) as third:
        assert {second.id, third.id} == ahead
        for sandbox in (second, third):
            with pytest.raises(FileNotFoundError):
                await sandbox.read_file("/tmp/used")
    async with pool.boot("host", lifetime_s=61) as other:  # another kind
        assert other.id not in ahead


async def test_agents_and_graders_sandboxes_do_not_push_each_other_out(tmp_path: Path) -> None:
    provider = Counting(local_provider(tmp_path / "state"))
    async with WarmPool(provider, size=4) as pool:
        for _ in range(5):
            for lifetime_s in (60, 61):
                async with pool.boot("host", lifetime_s=lifetime_s):
                    pass
                await until_idle(pool, min(4, provider.boots - 1))
        assert provider.boots == 2 + 8 + 4 + 2, (
            "two that found none, eight handed out, four that wait, two that made room"
        )


async def test_a_dead_one_is_never_handed_out(pool: WarmPool) -> None:
    async with pool.boot("host", lifetime_s=60):
        pass
    dead = await until_idle(pool, 2)
    for sandbox in dead:
        kill(sandbox._processes.init)
    async with pool.boot("host", lifetime_s=60) as living:
        assert living.id not in {sandbox.id for sandbox in dead}
        assert (await living.exec("echo here", timeout=20)).stdout == b"here\n"


async def test_one_from_the_pool_ends_with_the_lifetime_that_was_asked_for(pool: WarmPool) -> None:
    async with pool.boot("host", lifetime_s=1):
        pass
    await until_idle(pool, 2)
    async with pool.boot("host", lifetime_s=1) as sandbox:
        with pytest.raises(SandboxError, match="gone"):
            await sandbox.exec("sleep 30", timeout=30)


async def test_a_new_kind_takes_the_room_of_the_one_that_was_not_asked_for_longest(pool: WarmPool) -> None:
    for lifetime_s in (60, 61, 60, 62):
        async with pool.boot("host", lifetime_s=lifetime_s):
            pass
    await until_idle(pool, 2)
    assert sorted(held.kind.lifetime_s for held in pool._idle) == [60, 62]


async def test_boots_ahead_that_fail_harm_nobody(tmp_path: Path) -> None:
    meter = Meter()
    real = local_provider(tmp_path / "state")

    class LongOnesFail:
        @asynccontextmanager
        async def boot(self, image: str, *, lifetime_s: float, **more: Any) -> AsyncIterator[Any]:
            if lifetime_s > 100:
                raise SandboxError("no room")
            async with real.boot(image, lifetime_s=lifetime_s, **more) as sandbox:
                yield sandbox

        async def sweep(self) -> int:
            return await real.sweep()

    async with WarmPool(MeteredProvider(LongOnesFail(), meter), size=2) as pool:
        for _ in range(2):
            async with pool.boot("host", lifetime_s=60) as sandbox:
                assert (await sandbox.exec("echo here", timeout=20)).stdout == b"here\n"
        assert await pool.sweep() == 0
    taken = meter.take()
    assert taken["boots"] == 2
    assert taken["failures/SandboxError"] >= 2


@pytest.mark.parametrize("error", [SandboxError("mine"), asyncio.CancelledError()], ids=["error", "cancelled"])
async def test_an_error_of_the_callers_passes_as_it_is_and_nothing_stays(error: BaseException, tmp_path: Path) -> None:
    async def use() -> None:
        async with WarmPool(local_provider(tmp_path / "state"), size=2) as pool:
            async with pool.boot("host", lifetime_s=60):
                pass
            await until_idle(pool, 2)
            raise error

    with pytest.raises(type(error)):
        await use()
    assert list((tmp_path / "state").iterdir()) == []

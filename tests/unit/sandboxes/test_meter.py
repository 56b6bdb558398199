"""What a run learns of its sandboxes in numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rl_agent.errors import ImageError, SandboxError
from rl_agent.sandboxes.meter import Meter, MeteredProvider, sandbox_metrics
from tests.local import local_provider, needs_root

if TYPE_CHECKING:
    from pathlib import Path


@needs_root
async def test_boots_commands_ends_and_failures_are_counted_and_timed(tmp_path: Path) -> None:
    meter = Meter()
    provider = MeteredProvider(local_provider(tmp_path / "state"), meter)
    async with provider.boot("host", lifetime_s=60) as sandbox:
        assert (await sandbox.exec("echo hi", timeout=20)).stdout == b"hi\n"
        assert (await sandbox.exec("sleep 20", timeout=0.2)).timed_out
        await sandbox.write_file("/tmp/x", b"x")
        assert await sandbox.read_file("/tmp/x") == b"x"
        with pytest.raises(SandboxError):
            await sandbox.exec("exit 3", timeout=20, check=True)
    with pytest.raises(ImageError):
        async with provider.boot("no-such-image", lifetime_s=60):
            pass
    taken = meter.take()
    counts = {name: value for name, value in taken.items() if not name.endswith("_s")}
    assert counts == {
        "boots": 1,
        "execs": 2,
        "exec_timeouts": 1,
        "writes": 1,
        "reads": 1,
        "teardowns": 1,
        "failures/SandboxError": 1,
        "failures/ImageError": 1,
    }
    assert 0.2 <= taken["exec_s"] < 20
    assert 0 < taken["boot_s"] < 20
    assert meter.take() == {}
    assert await provider.sweep() == 0


def test_the_sums_of_workers_are_added_up_and_become_means() -> None:
    one = {"boots": 2, "boot_s": 1.0, "execs": 10, "exec_s": 20.0, "failures/SandboxLostError": 1}
    two = {"boots": 2, "boot_s": 3.0, "failures/SandboxLostError": 2}
    assert sandbox_metrics([one, two, {}]) == {
        "sandbox/boots": 4.0,
        "sandbox/execs": 10.0,
        "sandbox/failures/SandboxLostError": 3.0,
        "sandbox/boot_seconds_mean": 1.0,
        "sandbox/exec_seconds_mean": 2.0,
    }

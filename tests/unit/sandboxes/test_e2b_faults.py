"""What networks, proxies and clouds do to requests: no command runs twice, no call hangs, no sandbox leaks.

Real SDK, real gateway, real sandboxes; only the faults are made.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.errors import SandboxError
from rl_agent.sandboxes.base import SandboxLostError
from tests.faulty import CREATE, RUN, START, UPLOAD, faulty, runs
from tests.gateway_faults import Fault, FaultKind
from tests.local import e2b_provider, gateway, needs_root

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from rl_agent.sandboxes.base import Sandbox

pytestmark = needs_root
LONG = pytest.mark.long


@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind=FaultKind.STATUS, route=CREATE, status=503, times=2),
        pytest.param(Fault(kind=FaultKind.STATUS, route=CREATE, status=503, headers={"Retry-After": "1"}), marks=LONG),
        Fault(kind=FaultKind.STATUS, route=CREATE, status=429, headers={"Retry-After": "1"}),
        pytest.param(Fault(kind=FaultKind.STATUS, route=CREATE, status=502, message="bad gateway"), marks=LONG),
        Fault(kind=FaultKind.LOSE_REQUEST, route=CREATE),
        Fault(kind=FaultKind.LOSE_ANSWER, route=CREATE),
        Fault(kind=FaultKind.LOSE_REQUEST, route=START),
        Fault(kind=FaultKind.HALF_FRAME, route=START, frames=1),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.status}-{'start' if fault.route == START else 'create'}",
)
async def test_a_boot_is_asked_for_again_and_gives_one_sandbox(fault: Fault, tmp_path: Path) -> None:
    async with faulty(tmp_path, fault) as (opened, sandbox):
        assert fault.seen > fault.times
        assert [box.id for box in opened.boxes.all()] == [sandbox.id]


BROKEN_STREAMS = [
    *(Fault(kind=FaultKind.CUT, route=START, skip=1, frames=frames) for frames in (2, 3)),
    Fault(kind=FaultKind.HALF_FRAME, route=START, skip=1, frames=2),
]
BROKEN_AT_ONCE = [
    *(
        Fault(kind=kind, route=START, skip=1, frames=frames)
        for kind in (FaultKind.CUT, FaultKind.HALF_FRAME)
        for frames in (0, 1)
    ),
    Fault(kind=FaultKind.LOSE_ANSWER, route=START, skip=1),
]
"""No output says that the command began: it may not have, when the question after it arrives."""


@pytest.mark.parametrize("fault", BROKEN_STREAMS, ids=lambda fault: f"{fault.kind}-{fault.frames}")
async def test_a_command_whose_stream_breaks_ran_once_and_its_result_arrives(fault: Fault, tmp_path: Path) -> None:
    async with faulty(tmp_path, fault) as (opened, sandbox):
        result = await sandbox.exec(RUN, timeout=60)
        assert (result.exit_code, result.stdout, result.stderr) == (3, b"out\n", b"err\n")
        assert await runs(opened) == 1


@pytest.mark.parametrize("fault", BROKEN_AT_ONCE, ids=lambda fault: f"{fault.kind}-{fault.frames}")
async def test_a_command_whose_stream_breaks_at_once_ran_once_or_is_said_never_to_run(
    fault: Fault, tmp_path: Path
) -> None:
    async with faulty(tmp_path, fault) as (opened, sandbox):
        refused: SandboxError | None = None
        try:
            result = await sandbox.exec(RUN, timeout=60)
            assert (result.exit_code, result.stdout, result.stderr) == (3, b"out\n", b"err\n")
        except SandboxError as error:
            refused = error
        assert refused is None or "not started" in str(refused)
        assert await runs(opened) == (1 if refused is None else 0)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind=FaultKind.LOSE_REQUEST, route=START, skip=1),
        Fault(kind=FaultKind.STATUS, route=START, skip=1, status=503),
        pytest.param(Fault(kind=FaultKind.STATUS, route=START, skip=1, status=429), marks=LONG),
        pytest.param(Fault(kind=FaultKind.STATUS, route=START, skip=1, status=502, message="not open"), marks=LONG),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.status}",
)
async def test_a_command_that_never_arrived_is_an_error_and_never_runs(fault: Fault, tmp_path: Path) -> None:
    async with faulty(tmp_path, fault) as (opened, sandbox):
        with pytest.raises(SandboxError, match="not started"):
            await sandbox.exec(RUN, timeout=60)
        assert await runs(opened) == 0


async def test_a_command_that_arrives_after_it_was_given_up_does_not_run(tmp_path: Path) -> None:
    late = Fault(kind=FaultKind.DELAY, route=START, skip=1, seconds=4.0)
    async with faulty(tmp_path, late, request_timeout_s=2.0) as (opened, sandbox):
        given_up = False
        try:
            await sandbox.exec(RUN, timeout=60)  # the older SDK waits longer than that
        except SandboxError as error:
            given_up = "not started" in str(error)
            await asyncio.sleep(4.0)
        assert await runs(opened) == (0 if given_up else 1)


async def test_a_command_that_arrives_after_its_time_was_over_does_not_run(tmp_path: Path) -> None:
    late = Fault(kind=FaultKind.DELAY, route=START, skip=1, seconds=3.0)
    async with faulty(tmp_path, late) as (opened, sandbox):
        started = time.monotonic()
        assert (await sandbox.exec(RUN, timeout=1)).timed_out
        assert time.monotonic() - started < 20
        await asyncio.sleep(max(0.0, 4.0 - (time.monotonic() - started)))
        assert await runs(opened) == 0


async def test_a_timeout_ends_in_time_though_the_kill_has_to_be_asked_for_again(tmp_path: Path) -> None:
    refused = Fault(kind=FaultKind.STATUS, route=START, skip=2, status=503, times=2)
    async with faulty(tmp_path, refused) as (_, sandbox):
        started = time.monotonic()
        result = await sandbox.exec("echo so far; sleep 100", timeout=1)
        assert (result.timed_out, result.stdout) == (True, b"so far\n")
        assert time.monotonic() - started < 40


@pytest.mark.parametrize("kind", [FaultKind.LOSE_REQUEST, FaultKind.STATUS])
async def test_an_upload_is_sent_again_and_arrives_whole(kind: FaultKind, tmp_path: Path) -> None:
    content = bytes(range(256)) * 2000
    async with faulty(tmp_path, Fault(kind=kind, route=UPLOAD)) as (_, sandbox):
        await sandbox.write_file("/tmp/x", content)
        assert await sandbox.read_file("/tmp/x") == content


async def expose(sandbox: Sandbox) -> None:
    await sandbox.exec("true", timeout=30)
    await sandbox.expose(9)


CALLS: dict[str, Callable[[Sandbox], Awaitable[Any]]] = {
    "exec": lambda sandbox: sandbox.exec("sleep 60", timeout=60),
    "write": lambda sandbox: sandbox.write_file("/tmp/x", b"x"),
    "read": lambda sandbox: sandbox.read_file("/etc/passwd"),
    "expose": expose,
}


@pytest.mark.parametrize("kind", [FaultKind.KILL_BEFORE, FaultKind.KILL_AFTER])
@pytest.mark.parametrize("call", ["exec", *(pytest.param(name, marks=LONG) for name in ("write", "read", "expose"))])
async def test_a_sandbox_that_dies_between_calls_is_lost_at_once(kind: FaultKind, call: str, tmp_path: Path) -> None:
    async with faulty(tmp_path, Fault(kind=kind, route=START, skip=1)) as (_, sandbox):
        if kind is FaultKind.KILL_AFTER:
            await sandbox.exec("true", timeout=30)
        started = time.monotonic()
        with pytest.raises(SandboxLostError):
            await CALLS[call](sandbox)
        assert time.monotonic() - started < 30


async def test_a_provider_that_grants_a_shorter_life_than_asked_is_refused_clearly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rl_agent.errors import ConfigError
    from rl_agent.sandboxes.gateway.control import ControlPlane

    monkeypatch.setattr(ControlPlane, "_lifetime", lambda *_: 10.0)
    async with gateway(tmp_path) as opened:
        with pytest.raises(ConfigError, match=r"granted 10 s of the 120 s[\s\S]*Lower harness"):
            async with e2b_provider(opened.url, tmp_path).boot("host", lifetime_s=120):
                pass
        assert opened.boxes.all() == []


async def test_what_a_killed_owner_left_is_found_by_its_label_and_removed(tmp_path: Path) -> None:
    async with gateway(tmp_path) as opened:
        provider = e2b_provider(opened.url, tmp_path)
        booted = provider.boot("host", lifetime_s=120)
        await booted.__aenter__()
        live = tmp_path / "e2b" / "e2b" / "live"
        (record,) = live.iterdir()
        (box,) = opened.boxes.all()
        dead = f"4194304-1-{record.name.rpartition('-')[2]}"  # as if its owner were gone
        box.order.metadata["rl_agent_boot"] = dead  # type: ignore[index]
        record.rename(live / dead)
        assert await provider.sweep() == 1
        assert opened.boxes.all() == []
        assert list(live.iterdir()) == []
        await booted.__aexit__(None, None, None)


async def test_a_cancelled_boot_leaves_no_sandbox(tmp_path: Path) -> None:
    async with gateway(tmp_path, faults=[Fault(kind=FaultKind.DELAY, route=CREATE, seconds=1.0)]) as opened:
        provider = e2b_provider(opened.url, tmp_path)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5), provider.boot("host", lifetime_s=120):
                pass
        await asyncio.sleep(1.0)
        assert opened.boxes.all() == []

"""Every fault at every request of every call: no command runs twice, no call hangs, what comes back is right, nothing leaks.

CI takes a sample with a fixed seed; `make test-long` takes all.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from rl_agent.errors import SandboxError
from tests.faulty import CREATE, DOWNLOAD, END, RUN, START, UPLOAD, faulty, runs
from tests.gateway_faults import Fault, FaultKind
from tests.local import needs_root

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs_root

BOUND_S = 60.0
"""All waits of one call together: four tries of a request, twice."""
REQUEST_S = 4.0
COMMANDS = ("exec", "stdin", "timeout")
BIG = bytes(range(256)) * 3000
"""Larger than what goes inside a command: an upload, a download."""
BUSY = [
    Fault(kind=FaultKind.STATUS, route="", status=429),
    Fault(kind=FaultKind.STATUS, route="", status=429, headers={"Retry-After": "1"}),
    Fault(kind=FaultKind.STATUS, route="", status=503),
    Fault(kind=FaultKind.STATUS, route="", status=503, headers={"Retry-After": "1"}),
    Fault(kind=FaultKind.STATUS, route="", status=503, times=2),
    Fault(kind=FaultKind.STATUS, route="", status=502, message="bad gateway"),
    Fault(kind=FaultKind.STATUS, route="", status=504),
    Fault(kind=FaultKind.LOSE_REQUEST, route=""),
    Fault(kind=FaultKind.LOSE_ANSWER, route=""),
    Fault(kind=FaultKind.DELAY, route="", seconds=REQUEST_S + 1.5),
]
FRAMES = [
    Fault(kind=kind, route="", frames=frames) for kind in (FaultKind.CUT, FaultKind.HALF_FRAME) for frames in range(5)
]
WHOLE = [*BUSY, Fault(kind=FaultKind.TRUNCATE, route="")]
FILES = [*BUSY, Fault(kind=FaultKind.HALF_FILE, route=""), Fault(kind=FaultKind.SHORT_FILE, route="")]


@dataclass(frozen=True, slots=True)
class Case:
    """A fault at the `skip`-th request to `route`, while `call` is made."""

    call: str
    route: str
    skip: int
    fault: Fault

    def name(self) -> str:
        """For people."""
        fault, path = self.fault, self.route.rpartition("/")[2]
        what = f"{fault.kind}-{fault.status}-{fault.frames}-{'later' if fault.headers else fault.times}"
        return f"{self.call}-{path}-{self.skip}-{what}"


def cases() -> list[Case]:
    """All of them. Requests to START: the set-up's is the first, a call's own the second."""
    places = [
        *[("exec", route, 0, faults) for route, faults in ((CREATE, WHOLE), (END, BUSY), (START, [*WHOLE, *FRAMES]))],
        *[(call, START, 1, [*WHOLE, *FRAMES]) for call in ("exec", "stdin", "timeout", "write", "read")],
        *[("timeout", START, 2, [*WHOLE, *FRAMES]), ("upload", START, 1, [*WHOLE, *FRAMES])],
        *[("upload", UPLOAD, 0, WHOLE), ("stdin", UPLOAD, 0, WHOLE), ("download", DOWNLOAD, 0, FILES)],
    ]
    return [Case(call, route, skip, fault) for call, route, skip, faults in places for fault in faults]


SAMPLE = {case.name() for case in random.Random(4).sample(cases(), 16)}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name(), marks=() if case.name() in SAMPLE else pytest.mark.long) for case in cases()],
)
async def test_whatever_breaks_calls_end_rightly_or_with_an_error_and_commands_run_once(
    case: Case, tmp_path: Path
) -> None:
    fault = replace(case.fault, route=case.route, skip=case.skip, seen=0)
    async with faulty(tmp_path, fault, request_timeout_s=REQUEST_S, boot_timeout_s=40.0) as (opened, sandbox):
        (box,) = opened.boxes.all()
        if case.call == "download":
            await box.sandbox.write_file("/tmp/big", BIG)
        started, ran = time.monotonic(), 1
        refused: str | None = None
        try:
            match case.call:
                case "exec":
                    result = await sandbox.exec(RUN, timeout=50)
                    assert (result.exit_code, result.stdout, result.stderr) == (3, b"out\n", b"err\n")
                case "stdin":
                    result = await sandbox.exec(f"wc -c; {RUN}", stdin=BIG, timeout=50)
                    assert result.stdout == f"{len(BIG)}\nout\n".encode()
                case "timeout":
                    result = await sandbox.exec(f"{RUN.rpartition(';')[0]}; sleep 100", timeout=1.5)
                    assert result.timed_out
                    ran = int(bool(result.stdout))  # it was given up before it began, or had run
                case "write":
                    await sandbox.write_file("/tmp/small", b"\x00\xff")
                    assert await box.sandbox.read_file("/tmp/small") == b"\x00\xff"
                case "read":
                    assert b"root:" in await sandbox.read_file("/etc/passwd")
                case "upload":
                    await sandbox.write_file("/tmp/new", BIG)
                    assert await box.sandbox.read_file("/tmp/new") == BIG
                case "download":
                    assert await sandbox.read_file("/tmp/big") == BIG
        except SandboxError as error:
            refused, ran = str(error), 0
        assert time.monotonic() - started < BOUND_S
        if case.call in COMMANDS:
            assert refused is None or "not started" in refused
            assert await runs(opened) == ran
        else:
            assert refused is None, "it could have been asked again"
    if case.route != END:
        assert fault.seen > fault.skip, "the fault was never met"

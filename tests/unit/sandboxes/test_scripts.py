"""The script that runs a command does the same whatever an image has to reap and to change users with."""

from __future__ import annotations

import secrets
import shlex
from typing import TYPE_CHECKING

import pytest

from rl_agent.sandboxes.scripted import script
from tests.local import local_provider, needs_root

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rl_agent.sandboxes.base import Sandbox

pytestmark = needs_root
HIDDEN = {
    "perl": "",
    "python": "perl*",
    "bash-chroot": "perl* python*",
    "bash-setpriv": "perl* python* chroot",
    "bash-su": "perl* python* chroot setpriv",
}
"""What is used -> programs that the image lacks."""
PROGRAMS = "/tmp/programs"


@pytest.fixture(params=list(HIDDEN))
async def sandbox(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with local_provider(tmp_path / "state").boot("host", lifetime_s=120) as sandbox:
        await sandbox.exec(script.SET_UP, user="root", timeout=60, check=True)
        links = f"mkdir {PROGRAMS}; for d in /bin /usr/bin /sbin /usr/sbin; do ln -sf $d/* {PROGRAMS}; done"
        hide = f"cd {PROGRAMS}; rm -f {HIDDEN[request.param]}"
        await sandbox.exec(f"{links}; {hide}", user="root", timeout=60, check=True)
        yield sandbox


async def run(sandbox: Sandbox, cmd: str, *, user: str = "agent", cwd: str | None = None) -> script.Report:
    text = script.start(
        secrets.token_hex(10),
        cmd,
        folder=script.COMMANDS,
        user=user,
        env={"GIVEN": "yes"},
        cwd=cwd,
        stdin=False,
        limit=10_000,
    )
    text = text.replace(script.PATH, PROGRAMS)
    done = await sandbox.exec(f"PATH={PROGRAMS}; {text}", user="root", timeout=60, check=True)
    report = script.parse(done.stdout.decode())
    assert report is not None, done
    return report


async def test_a_command_is_its_users_with_that_users_home_and_groups(sandbox: Sandbox) -> None:
    shown = await run(sandbox, 'id -un; id -G; pwd; echo "$HOME $USER $GIVEN"; cat; echo err >&2; exit 7')
    name, groups, folder, variables = shown.stdout.decode().splitlines()
    assert (shown.state, name, folder, variables) == ("7", "agent", "/home/agent", "/home/agent agent yes")
    assert "0" not in groups.split()
    assert shown.stderr == b"err\n"


async def test_roots_commands_signals_and_what_cannot_be(sandbox: Sandbox) -> None:
    assert (await run(sandbox, "id -u; pwd", user="root", cwd="/usr")).stdout == b"0\n/usr\n"
    assert (await run(sandbox, "kill -TERM $$")).state == "143"
    assert (await run(sandbox, f"ls {script.COMMANDS}; [ ! -w {shlex.quote(script.COMMANDS)} ]")).state == "0"
    assert (await run(sandbox, "true", cwd="/nowhere")).state == "126"
    assert (await run(sandbox, "true", user="nobody-here")).state == script.NO_USER
    gone = await run(sandbox, "(setsid sleep 300 &); echo started")
    assert (gone.state, gone.stdout) == ("0", b"started\n")

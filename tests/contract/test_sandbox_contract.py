"""What every sandbox provider keeps. A new provider joins by adding itself to PROVIDERS."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rl_agent.config.sandbox import Network
from rl_agent.errors import ImageError, SandboxError
from rl_agent.sandboxes.base import Asset, Limits, SandboxProvider, UnreadableError
from tests import podman
from tests.local import e2b_through_a_gateway, local_as_it_is, needs_root

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from rl_agent.sandboxes.base import Sandbox

Opener = Callable[[Path, str | None], "AbstractAsyncContextManager[Any]"]


@asynccontextmanager
async def docker_through_podman(folder: Path, url: str | None) -> AsyncIterator[SandboxProvider]:
    if url is None:
        pytest.skip(str(podman.missing()))
    yield podman.docker_provider(url, folder)


PROVIDERS: dict[str, tuple[Opener, str]] = {
    "local-host-image": (lambda folder, _: local_as_it_is(folder), "host"),
    "e2b-gateway-local": (lambda folder, _: e2b_through_a_gateway(folder), "host"),
    "docker-podman": (docker_through_podman, podman.IMAGE),
}
"""Name -> how to open a provider with a state folder (and Podman's URL), and an image that it boots."""


@pytest.fixture(params=list(PROVIDERS))
async def booted(
    request: pytest.FixtureRequest, tmp_path: Path, podman_url: str | None
) -> AsyncIterator[tuple[SandboxProvider, str]]:
    opened, image = PROVIDERS[request.param]
    async with opened(tmp_path / "state", podman_url) as provider:
        yield provider, image


@pytest.fixture
async def sandbox(booted: tuple[SandboxProvider, str]) -> AsyncIterator[Sandbox]:
    provider, image = booted
    async with provider.boot(image, lifetime_s=120) as sandbox:
        yield sandbox


async def count(sandbox: Sandbox, mark: str) -> int:
    """How many processes in the sandbox have `mark` in their command line."""
    script = f"for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$f; echo; done | grep -c '^{mark}'"
    return int((await sandbox.exec(script, user="root", timeout=20)).stdout)


async def test_exec_tells_output_and_exit_code_apart_and_keeps_bytes(sandbox: Sandbox) -> None:
    result = await sandbox.exec(r"printf '\xff\x00a'; printf b >&2; exit 7", timeout=20)
    assert (result.exit_code, result.stdout, result.stderr) == (7, b"\xff\x00a", b"b")
    assert not result.timed_out


async def test_a_signal_shows_as_128_plus_its_number(sandbox: Sandbox) -> None:
    assert (await sandbox.exec("kill -TERM $$", timeout=20)).exit_code == 128 + 15


async def test_commands_run_as_agent_with_a_home_of_its_own(sandbox: Sandbox) -> None:
    result = await sandbox.exec('id -un; [ "$(id -u)" != 0 ]; cd ~ && touch mine && pwd', timeout=20, check=True)
    user, home = result.stdout.decode().split()
    assert user == "agent"
    assert home != "/"


async def test_commands_run_as_another_user_when_asked(sandbox: Sandbox) -> None:
    assert (await sandbox.exec("id -u", user="root", timeout=20)).stdout == b"0\n"


async def test_an_unknown_user_is_an_error(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError, match="nobody-here"):
        await sandbox.exec("true", user="nobody-here", timeout=20)


async def test_the_environment_is_a_minimal_default_and_what_is_given(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_HOST", "leaked")
    shown = await sandbox.exec("env", env={"GIVEN": "yes"}, timeout=20)
    names = {line.split("=")[0] for line in shown.stdout.decode().splitlines()}
    assert "GIVEN" in names
    assert names <= {"GIVEN", "PATH", "HOME", "USER", "LOGNAME", "LANG", "TERM", "PWD", "SHLVL", "OLDPWD", "_"}


async def test_stdin_is_what_is_given_and_otherwise_at_its_end(sandbox: Sandbox) -> None:
    big = b"0123456789" * 100_000
    assert (await sandbox.exec("wc -c", stdin=big, timeout=20)).stdout.strip() == b"1000000"
    assert (await sandbox.exec("cat", timeout=20)).stdout == b""


async def test_cwd_is_honoured_and_a_missing_one_fails_the_command(sandbox: Sandbox) -> None:
    assert (await sandbox.exec("pwd", cwd="/usr", timeout=20)).stdout == b"/usr\n"
    assert (await sandbox.exec("pwd", cwd="/nowhere", timeout=20)).exit_code != 0


async def test_a_timeout_kills_the_whole_tree_even_what_daemonised_and_keeps_the_output(sandbox: Sandbox) -> None:
    started = time.monotonic()
    result = await sandbox.exec("echo so far; sleep 991 & setsid -f sleep 992; sleep 993", timeout=1)
    assert (result.exit_code, result.timed_out, result.stdout) == (-1, True, b"so far\n")
    assert time.monotonic() - started < 15
    assert await count(sandbox, "sleep 99") == 0


LOOK = """exec </dev/null
for f in /proc/[0-9]*/fd/*; do [ -f "$f" ] && grep -sl the-secret "$f"; done
grep -rsl the-secret /opt/rl_agent /tmp /run /var/tmp
for d in /opt/rl_agent/*/*; do echo 0 >"$d/code"; done 2>/dev/null
kill -9 $PPID 2>/dev/null
exit 3"""


@needs_root
async def test_a_command_finds_no_input_but_its_own_and_does_not_say_itself_how_it_ended(sandbox: Sandbox) -> None:
    result = await sandbox.exec(f"wc -c; {LOOK}", stdin=b"the-secret", timeout=60)
    assert (result.exit_code, result.stdout.split()) == (3, [b"10"])
    shown = await sandbox.exec("echo out >/dev/stdout; echo err >/dev/stderr; id -G; cat", timeout=60)
    assert (shown.exit_code, shown.stderr) == (0, b"err\n"), "streams can be opened by name, and no group is root's"
    assert shown.stdout.startswith(b"out\n")
    assert b"0" not in shown.stdout.split()


@needs_root
async def test_a_command_that_kills_whatever_it_may_ends_and_the_next_one_runs(sandbox: Sandbox) -> None:
    result = await sandbox.exec("kill -9 -1; kill -9 $$", timeout=60)
    assert result.exit_code == 128 + 9
    assert (await sandbox.exec("echo next", timeout=30)).stdout == b"next\n"


async def test_cancelling_the_caller_kills_the_whole_tree(sandbox: Sandbox) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await sandbox.exec("setsid -f sleep 994; sleep 995", timeout=60)
    assert await count(sandbox, "sleep 99") == 0


async def test_a_process_left_behind_on_purpose_outlives_its_command_which_returns_at_once(sandbox: Sandbox) -> None:
    started = time.monotonic()
    result = await sandbox.exec("(setsid sleep 996 &) ; echo started", timeout=60)
    assert result.stdout == b"started\n"
    assert time.monotonic() - started < 20
    # it may not have become `sleep` yet
    until = "for i in $(seq 200); do grep -q '^sleep' /proc/[0-9]*/cmdline && break; sleep 0.05; done"
    await sandbox.exec(until, user="root", timeout=60)
    assert await count(sandbox, "sleep 996") == 1


async def test_check_raises_with_the_end_of_stderr(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError, match="it broke"):
        await sandbox.exec("echo it broke >&2; exit 3", timeout=20, check=True)
    with pytest.raises(SandboxError, match="longer than"):
        await sandbox.exec("sleep 30", timeout=0.5, check=True)


async def test_a_long_output_keeps_head_and_tail_and_says_what_was_dropped(sandbox: Sandbox) -> None:
    result = await sandbox.exec("echo first; head -c 20000000 /dev/zero | tr '\\0' x; echo; echo last", timeout=60)
    assert result.stdout.startswith(b"first\n")
    assert result.stdout.endswith(b"last\n")
    assert b"bytes dropped" in result.stdout
    assert len(result.stdout) < 10_000_000


async def test_files_come_back_as_they_were_written(sandbox: Sandbox, tmp_path: Path) -> None:
    on_host = tmp_path / "big"
    on_host.write_bytes(bytes(range(256)) * 10_000)
    await sandbox.write_file("/tmp/new/folder/a", b"\x00\xff", mode=0o600)
    await sandbox.write_file("/tmp/b", "text é")
    await sandbox.write_file("/tmp/c", on_host)
    assert await sandbox.read_file("/tmp/new/folder/a") == b"\x00\xff"
    assert await sandbox.read_file("/tmp/b") == "text é".encode()
    assert await sandbox.read_file("/tmp/c") == on_host.read_bytes()
    modes = await sandbox.exec("stat -c '%a %U' /tmp/new/folder/a", timeout=20)
    assert modes.stdout == b"600 agent\n"


async def test_an_empty_file_is_empty_and_a_missing_one_is_an_error(sandbox: Sandbox) -> None:
    await sandbox.write_file("/tmp/empty", b"")
    assert await sandbox.read_file("/tmp/empty") == b""
    with pytest.raises(FileNotFoundError, match="/tmp/missing"):
        await sandbox.read_file("/tmp/missing")


async def test_a_bounded_read_holds_no_more_than_it_was_allowed(sandbox: Sandbox) -> None:
    await sandbox.write_file("/tmp/a", bytes(range(256)))
    assert await sandbox.read_file("/tmp/a", max_bytes=256) == bytes(range(256))
    await sandbox.exec("dd if=/dev/zero of=/tmp/sparse bs=1 count=0 seek=1T", timeout=20, check=True)
    for path, most in (("/tmp/a", 255), ("/tmp/sparse", 300_000)):
        with pytest.raises(UnreadableError, match=f"{path} has more than {most} bytes"):
            await sandbox.read_file(path, max_bytes=most)


@pytest.mark.parametrize("make", ["mkdir /tmp/x", "mkfifo /tmp/x", "ln -s x /tmp/x", "ln -s /dev/zero /tmp/x"])
async def test_what_is_no_regular_file_is_unreadable_and_the_sandbox_lives(sandbox: Sandbox, make: str) -> None:
    await sandbox.exec(make, timeout=20, check=True)
    with pytest.raises(UnreadableError, match="/tmp/x"):
        await sandbox.read_file("/tmp/x", user="root", max_bytes=100)
    assert (await sandbox.exec("true", timeout=20)).exit_code == 0


@needs_root
async def test_users_cannot_reach_what_is_not_theirs_through_file_calls(sandbox: Sandbox) -> None:
    await sandbox.write_file("/root/private", b"root's", user="root", mode=0o600)
    assert await sandbox.read_file("/root/private", user="root") == b"root's"
    with pytest.raises(SandboxError):
        await sandbox.read_file("/root/private")
    with pytest.raises(SandboxError):
        await sandbox.write_file("/etc/mine", b"")
    with pytest.raises(SandboxError):
        await sandbox.read_file("/tmp")


async def test_assets_are_there_and_cannot_be_changed(booted: tuple[SandboxProvider, str], tmp_path: Path) -> None:
    provider, image = booted
    (tmp_path / "asset").mkdir()
    (tmp_path / "asset" / "program").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "asset" / "program").chmod(0o755)
    asset = Asset(source=tmp_path / "asset", target="/opt/deep/down/asset")
    async with provider.boot(image, assets=[asset], lifetime_s=60) as sandbox:
        assert (await sandbox.exec("/opt/deep/down/asset/program", timeout=20)).stdout == b"ran\n"
        assert (await sandbox.exec("echo > /opt/deep/down/asset/program", user="root", timeout=20)).exit_code != 0
    assert (tmp_path / "asset" / "program").read_text() == "#!/bin/sh\necho ran\n"


async def test_only_exposed_ports_of_the_host_are_reachable(sandbox: Sandbox) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        writer.write(b"you said " + line)
        await writer.drain()
        writer.close()

    async with (
        await asyncio.start_server(answer, "127.0.0.1", 0) as one,
        await asyncio.start_server(answer, "127.0.0.1", 0) as other,
    ):
        port, hidden = (server.sockets[0].getsockname()[1] for server in (one, other))
        url = await sandbox.expose(port)
        host, inner = url.removeprefix("http://").split(":")
        said = await sandbox.exec(f"exec 3<>/dev/tcp/{host}/{inner}; echo hello >&3; cat <&3", timeout=20)
        assert said.stdout == b"you said hello\n"
        assert await sandbox.expose(port) == url
        refused = await sandbox.exec(f"exec 3<>/dev/tcp/127.0.0.1/{hidden}", timeout=20)
        assert refused.exit_code != 0


async def test_with_the_hosts_network_its_ports_are_reachable(booted: tuple[SandboxProvider, str]) -> None:
    provider, image = booted
    async with (
        await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server,
        provider.boot(image, lifetime_s=60, network=Network.host) as sandbox,
    ):
        host, port = (await sandbox.expose(server.sockets[0].getsockname()[1])).removeprefix("http://").split(":")
        assert (await sandbox.exec(f"exec 3<>/dev/tcp/{host}/{port}", timeout=20)).exit_code == 0


async def test_after_its_lifetime_a_sandbox_is_gone(booted: tuple[SandboxProvider, str]) -> None:
    provider, image = booted
    async with provider.boot(image, lifetime_s=6) as sandbox:
        with pytest.raises(SandboxError, match="lifetime"):
            await sandbox.exec("sleep 60", timeout=60)
        with pytest.raises(SandboxError, match="lifetime"):
            await sandbox.read_file("/etc/passwd")


async def test_an_image_that_does_not_exist_is_named_with_a_remedy(booted: tuple[SandboxProvider, str]) -> None:
    provider, _ = booted
    with pytest.raises(ImageError, match=r"no-such-image[\s\S]*(Use `host`|Build a template|Run `docker pull`)"):
        async with provider.boot("no-such-image", lifetime_s=60):
            pass


async def test_sandboxes_share_nothing(booted: tuple[SandboxProvider, str]) -> None:
    provider, image = booted
    async with provider.boot(image, lifetime_s=60) as one, provider.boot(image, lifetime_s=60) as two:
        assert one.id != two.id
        await one.write_file("/tmp/mine", b"1")
        await one.exec("setsid -f sleep 997", timeout=20)
        with pytest.raises(FileNotFoundError):
            await two.read_file("/tmp/mine")
        assert await count(two, "sleep 997") == 0


async def test_many_sandboxes_boot_at_once(booted: tuple[SandboxProvider, str]) -> None:
    provider, image = booted

    async def one(number: int) -> bytes:
        async with provider.boot(image, lifetime_s=120) as sandbox:
            await sandbox.write_file("/tmp/n", str(number))
            return (await sandbox.exec("cat /tmp/n", timeout=60)).stdout

    assert await asyncio.gather(*[one(number) for number in range(16)]) == [str(n).encode() for n in range(16)]


@needs_root
async def test_a_bound_on_processes_holds(booted: tuple[SandboxProvider, str]) -> None:
    provider, image = booted
    async with provider.boot(image, lifetime_s=60, limits=Limits(processes=40)) as sandbox:
        # A shell that gives up at once where bash would try for a quarter of a minute.
        script = r"""sh -c 'trap "kill \$p" EXIT; for i in $(seq 100); do sleep 50 & p="$p $!"; done; echo all'"""
        result = await sandbox.exec(script, timeout=20)
        if result.stdout == b"all\n":
            pytest.skip("this machine has no delegated pids controller")
        assert result.exit_code != 0

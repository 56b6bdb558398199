"""What the local sandbox hides, forbids, and leaves behind."""

from __future__ import annotations

# A test may block its own loop for the moment that a look at the machine takes.
# ruff: noqa: ASYNC110, ASYNC220, ASYNC221, ASYNC240
import asyncio
import contextlib
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

import rl_agent
from rl_agent.errors import ConfigError, SandboxError
from rl_agent.sandboxes.base import Asset, Limits
from rl_agent.sandboxes.local import images
from rl_agent.sandboxes.local.limits import Controllers
from rl_agent.sandboxes.local.provider import Storage
from tests.local import local_provider, needs_root

if TYPE_CHECKING:
    from rl_agent.sandboxes.local.provider import LocalProvider

pytestmark = needs_root
MARK = b"TOP-SECRET-OF-THE-HOST"


@pytest.fixture
def provider(tmp_path: Path) -> LocalProvider:
    return local_provider(tmp_path / "state")


async def test_places_where_machines_keep_secrets_are_empty(provider: LocalProvider) -> None:
    async with provider.boot("host", lifetime_s=60) as sandbox:
        listing = await sandbox.exec(
            "ls -A /root /mnt /media /run /srv /sys /tmp /var/tmp /opt /data 2>/dev/null | grep -v ':$' | grep .; ls -A /home",
            user="root",
            timeout=20,
        )
        assert listing.stdout == b"agent\n"
        shadow = await sandbox.read_file("/etc/shadow", user="root")
        assert shadow == b"root:*:::::::\nagent:*:::::::\n"
        gone = await sandbox.exec("ls /etc/ssh /etc/ssl/private /etc/pip.conf /etc/sudoers", user="root", timeout=20)
        assert gone.stdout == b""


@pytest.mark.parametrize("place", ["/root", "/home", "/tmp", "/var/lib", "/opt"])
async def test_a_secret_on_the_host_cannot_be_found(provider: LocalProvider, place: str) -> None:
    secret = Path(place, f"rl_agent_test_secret_{os.getpid()}")
    secret.write_bytes(MARK)
    secret.chmod(0o644)
    try:
        async with provider.boot("host", lifetime_s=60) as sandbox:
            assert (await sandbox.exec(f"cat {secret}", user="root", timeout=20)).exit_code != 0
    finally:
        secret.unlink()


async def test_the_project_is_hidden_even_inside_a_shown_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Path("/usr/local/share", f"rl_agent_test_{os.getpid()}", "project")
    here.mkdir(parents=True)
    (here / "secret").write_bytes(MARK)
    monkeypatch.chdir(here)
    try:
        async with local_provider(tmp_path / "state").boot("host", lifetime_s=60) as sandbox:
            assert (await sandbox.exec(f"ls -A {here}", user="root", timeout=20)).stdout == b""
            code = Path(rl_agent.__file__).parent.parent
            assert (await sandbox.exec(f"ls -A {code}", user="root", timeout=20)).stdout == b""
    finally:
        (here / "secret").unlink()
        here.rmdir()
        here.parent.rmdir()


async def test_processes_of_the_host_and_its_paths_are_invisible(provider: LocalProvider) -> None:
    async with provider.boot("host", lifetime_s=60) as sandbox:
        shown = await sandbox.exec("cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ", user="root", timeout=20)
        assert len((await sandbox.exec("ls -d /proc/[0-9]*", timeout=20)).stdout.split()) < 12
        assert b"pytest" not in shown.stdout
        assert str(Path(rl_agent.__file__).parent).encode() not in shown.stdout


@pytest.mark.parametrize(
    "command",
    [
        "mount -t tmpfs none /mnt",
        "mknod /dev/sda b 8 0",
        "echo 1 > /proc/sys/kernel/panic",
        "echo b > /proc/sysrq-trigger",
        "ip link add veth0 type veth",
        "chroot / nsenter -t 1 -m true",
        "unshare -n true",
    ],
)
async def test_root_in_the_sandbox_is_not_root_of_the_machine(provider: LocalProvider, command: str) -> None:
    async with provider.boot("host", lifetime_s=60) as sandbox:
        assert (await sandbox.exec(command, user="root", timeout=20)).exit_code != 0


async def test_the_agent_gains_nothing_from_setuid_programs(provider: LocalProvider) -> None:
    async with provider.boot("host", lifetime_s=60) as sandbox:
        status = (await sandbox.exec("grep -E 'NoNewPrivs|CapEff' /proc/self/status", timeout=20)).stdout.split()
        assert status == [b"CapEff:", b"0" * 16, b"NoNewPrivs:", b"1"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter is for x86-64")
@pytest.mark.parametrize("seccomp", [True, False])
async def test_the_filter_takes_user_namespaces_away_and_threads_and_children_still_work(
    tmp_path: Path, seccomp: bool
) -> None:
    async with local_provider(tmp_path / "state", seccomp=seccomp).boot("host", lifetime_s=60) as sandbox:
        shown = await sandbox.exec("grep ^Seccomp: /proc/self/status", timeout=20)
        assert shown.stdout == (b"Seccomp:\t2\n" if seccomp else b"Seccomp:\t0\n")
        refused = await sandbox.exec("unshare -U true", timeout=20)
        assert (refused.exit_code != 0) or not seccomp
        script = "import subprocess, threading; t = threading.Thread(target=subprocess.call, args=(['echo', 'hi'],)); t.start(); t.join()"
        assert (await sandbox.exec(f'python3 -c "{script}"', timeout=30)).stdout == b"hi\n"


async def test_python_and_git_work_inside(provider: LocalProvider) -> None:
    async with provider.boot("host", lifetime_s=60) as sandbox:
        result = await sandbox.exec(
            "python3 -c 'import json, ssl; print(6 * 7)' && git --version", timeout=30, check=True
        )
        assert result.stdout.startswith(b"42\n")


async def test_a_python_that_lies_in_a_hidden_folder_is_shown_elsewhere(
    provider: LocalProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images.shutil, "which", lambda *_, **__: None)
    async with provider.boot("host", lifetime_s=60) as sandbox:
        script = "import json, os, sys; print(sys.version_info[:2] == (3, 11), os.__file__)"
        result = await sandbox.exec(f"python3 -c '{script}'", timeout=30, check=True)
        assert result.stdout.startswith(b"True /opt/rl_agent/python/")


async def test_no_descriptor_is_left_open(provider: LocalProvider) -> None:
    async def use() -> None:
        async with provider.boot("host", lifetime_s=60) as sandbox:
            await sandbox.exec("setsid -f sleep 60; echo hi", stdin=b"x", timeout=20)
            await sandbox.exec("sleep 60", timeout=0.2)
            await sandbox.write_file("/tmp/x", b"x")
            await sandbox.read_file("/tmp/x")
            await sandbox.expose(9)
        with pytest.raises(SandboxError):
            async with provider.boot("host", assets=[Asset(source=Path("/"), target="/etc/passwd/x")], lifetime_s=60):
                pass

    await use()
    before = len(list(Path("/proc/self/fd").iterdir()))
    await use()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("storage", list(Storage))
async def test_folders_of_the_image_can_be_changed_without_touching_the_host(tmp_path: Path, storage: Storage) -> None:
    provider = local_provider(tmp_path / "state", storage=storage)
    async with provider.boot("host", lifetime_s=60) as sandbox:
        script = "mv /usr/share/doc /usr/share/doc2 && echo hi > /usr/share/doc2/new && rm /usr/bin/env && ls /usr/share/doc2/new"
        assert (await sandbox.exec(script, user="root", timeout=30)).exit_code == 0
    assert Path("/usr/bin/env").exists()
    assert not Path("/usr/share/doc2").exists()
    assert list((tmp_path / "state").iterdir()) == []


async def test_what_may_be_written_is_bounded(tmp_path: Path) -> None:
    async with local_provider(tmp_path / "state", disk_mb=16).boot("host", lifetime_s=60) as sandbox:
        result = await sandbox.exec("head -c 40000000 /dev/zero > /tmp/big", timeout=30)
        assert result.exit_code != 0


async def test_a_full_disk_of_one_sandbox_leaves_room_to_the_host_and_to_others(tmp_path: Path) -> None:
    provider = local_provider(tmp_path / "state", disk_mb=16)
    async with provider.boot("host", lifetime_s=60) as greedy, provider.boot("host", lifetime_s=60) as other:
        fill = "for d in /tmp /var/tmp /home/agent /dev/shm /run; do head -c 600000000 /dev/zero >$d/big; done; df -k --output=avail /tmp | tail -1"
        left = await greedy.exec(fill, user="root", timeout=60)
        assert int(left.stdout) < 1000
        assert b"No space left" in left.stderr
        assert (await greedy.exec("echo still serves", timeout=20)).stdout == b"still serves\n"
        await other.write_file("/tmp/x", b"x" * 1_000_000)


@pytest.mark.skipif(
    "pids" not in Controllers.find().parents, reason="this machine bounds no processes: the bomb would be real"
)
async def test_a_fork_bomb_is_bounded_and_ends_with_its_command(provider: LocalProvider) -> None:
    async with (
        provider.boot("host", lifetime_s=60, limits=Limits(processes=64)) as sandbox,
        provider.boot("host", lifetime_s=60) as other,
    ):
        bomb = asyncio.ensure_future(sandbox.exec("bomb() { bomb | bomb & }; bomb; sleep 60", timeout=3))
        await asyncio.sleep(1.5)
        assert len(psutil.Process().children(recursive=True)) < 150
        assert (await other.exec("echo unharmed", timeout=20)).stdout == b"unharmed\n"
        assert (await bomb).timed_out
        assert (await sandbox.exec("echo still serves", timeout=20)).stdout == b"still serves\n"


PTRACE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
seen = 0
for pid in map(int, sys.argv[1:]):
    seen += os.path.exists(f"/proc/{pid}")
    for request in (16, 0x4206):  # PTRACE_ATTACH, PTRACE_SEIZE
        if libc.ptrace(request, pid, None, None) == 0:
            seen += 1
    here, there = ctypes.create_string_buffer(8), (ctypes.c_uint64 * 2)(0x400000, 8)
    mine = (ctypes.c_uint64 * 2)(ctypes.addressof(here), 8)
    if libc.process_vm_readv(pid, mine, 1, there, 1, 0) > 0:
        seen += 1
print(seen)
"""


async def test_another_sandboxs_processes_and_the_hosts_cannot_be_traced(provider: LocalProvider) -> None:
    async with provider.boot("host", lifetime_s=60) as one, provider.boot("host", lifetime_s=60) as two:
        mark = f"2{os.getpid()}"
        await two.exec(f"setsid -f sleep {mark}", timeout=20)
        deadline = time.monotonic() + 20
        while not (victims := _running(f"sleep {mark}")) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        numbers = " ".join(str(pid) for pid in [*victims, os.getpid(), os.getppid()] if pid > 1000)
        for user in ("root", "agent"):
            shown = await one.exec(f"python3 - {numbers}", stdin=PTRACE.encode(), user=user, timeout=30, check=True)
            assert shown.stdout == b"0\n"


async def test_no_address_of_the_machine_or_beyond_is_reachable(provider: LocalProvider) -> None:
    addresses = {a.address for found in psutil.net_if_addrs().values() for a in found if a.family == socket.AF_INET}
    async with (
        await asyncio.start_server(lambda _, writer: writer.close(), "0.0.0.0", 0) as server,
        provider.boot("host", lifetime_s=60) as sandbox,
    ):
        port = server.sockets[0].getsockname()[1]
        for address in [*addresses, "192.0.2.1", "169.254.169.254"]:
            tried = await sandbox.exec(f"exec 3<>/dev/tcp/{address}/{port}", user="root", timeout=10)
            assert tried.exit_code not in (0, -1), address
        devices = await sandbox.exec("tail -n +3 /proc/net/dev | cut -d: -f1", timeout=10)
        assert devices.stdout.split() == [b"lo"]


async def test_memory_is_bounded(provider: LocalProvider) -> None:
    async with provider.boot("host", lifetime_s=60, limits=Limits(memory_mb=64)) as sandbox:
        result = await sandbox.exec("python3 -c 'x = bytearray(300 << 20); print(len(x))'", timeout=30)
        assert b"314572800" not in result.stdout


async def test_the_configured_niceness_reaches_commands(tmp_path: Path) -> None:
    async with local_provider(tmp_path / "state", nice=7).boot("host", lifetime_s=60) as sandbox:
        assert (await sandbox.exec("nice", timeout=20)).stdout == f"{os.nice(0) + 7}\n".encode()


async def test_a_dir_image_boots_and_a_wrong_one_is_named(provider: LocalProvider, tmp_path: Path) -> None:
    rootfs = tmp_path / "rootfs"
    (rootfs / "etc").mkdir(parents=True)
    (rootfs / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/bash\nsomeone:x:1000:1000::/:/bin/sh\n")
    for name in ("bin", "lib", "lib64", "sbin"):
        (rootfs / name).symlink_to(f"usr/{name}")
        (rootfs / "usr" / name).mkdir(parents=True)
    needed = ["/bin/bash", "/bin/sh", "/usr/bin/id", "/usr/bin/ls"]
    libraries = subprocess.run(["ldd", *needed], capture_output=True, text=True, check=True).stdout
    for word in {word.rstrip(":") for word in libraries.split() if word.startswith("/")}:
        target = rootfs / word.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(word, target)
    async with provider.boot(f"dir:{rootfs}", lifetime_s=60) as sandbox:
        assert (await sandbox.exec("id -un; id -u; ls /", timeout=20)).stdout.split()[:2] == [b"agent", b"1001"]
    assert not (rootfs / "home").exists()
    with pytest.raises(ConfigError, match=r"nowhere is not a root file system[\s\S]*Create one"):
        async with provider.boot(f"dir:{tmp_path}/nowhere", lifetime_s=60):
            pass


OWNER = """
import asyncio, contextlib, sys
from pathlib import Path
from tests.local import local_provider
async def one(provider, stack, number):
    sandbox = await stack.enter_async_context(provider.boot("host", lifetime_s=600))
    await sandbox.exec(f"setsid -f sleep {sys.argv[3]}", timeout=60)
    return sandbox
async def main():
    provider = local_provider(Path(sys.argv[1]), nice=5)
    async with contextlib.AsyncExitStack() as stack:
        boxes = await asyncio.gather(*[one(provider, stack, n) for n in range(int(sys.argv[2]))])
        print("up", flush=True)
        await asyncio.gather(*[box.exec(f"sleep {sys.argv[3]}", timeout=600) for box in boxes])
asyncio.run(main())
"""


def _running(mark: str) -> list[int]:
    return [p.pid for p in psutil.process_iter(["cmdline"]) if mark in " ".join(p.info["cmdline"] or [])]


async def test_killing_the_owner_of_32_sandboxes_leaves_no_process_and_no_mount_and_the_next_start_no_folder(
    tmp_path: Path,
) -> None:
    state, count, mark = tmp_path / "state", 32, f"1{os.getpid()}"
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(state), str(count), mark],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"up\n"
    deadline = time.monotonic() + 60
    while len(_running(f"sleep {mark}")) < 2 * count and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    below = [child.pid for child in psutil.Process(owner.pid).children(recursive=True)]
    assert len(below) > 3 * count
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    deadline = time.monotonic() + 20
    while (_running(f"sleep {mark}") or any(psutil.pid_exists(pid) for pid in below)) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    assert _running(f"sleep {mark}") == []
    assert [pid for pid in below if psutil.pid_exists(pid)] == []
    for table in Path("/proc").glob("[0-9]*/mountinfo"):
        with contextlib.suppress(OSError):  # it has just ended
            assert str(state) not in table.read_text(), "a mount, in whichever namespace"
    provider = local_provider(state)
    async with provider.boot("host", lifetime_s=60):
        assert await provider.sweep() == count
        assert len(list(state.iterdir())) == 1, "a living owner's folder stays"
    assert list(state.iterdir()) == []
    groups = [path for top in ("cpu", "memory", "pids") for path in Path("/sys/fs/cgroup", top).glob("**/rl_agent-*")]
    assert not [path for path in groups if path.name.startswith(f"rl_agent-{owner.pid}-")]


async def test_a_lost_helper_is_a_sandbox_error_at_once(provider: LocalProvider) -> None:
    async with provider.boot("host", lifetime_s=60) as sandbox:
        helper = next(child for child in psutil.Process().children() if child.cmdline()[:1] == ["sandbox"])
        helper.kill()
        with pytest.raises(SandboxError):
            await sandbox.exec("true", timeout=20)


async def test_a_cancelled_boot_leaves_nothing(provider: LocalProvider, tmp_path: Path) -> None:
    before = psutil.Process().children()
    for delay in (0.0, 0.001, 0.005, 0.01, 0.02, 0.03):
        try:
            async with asyncio.timeout(delay), provider.boot("host", lifetime_s=60):
                await asyncio.sleep(1)
        except TimeoutError:
            pass
    assert list((tmp_path / "state").iterdir()) == []
    assert psutil.Process().children() == before

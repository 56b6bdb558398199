"""The host's end of `nsexec.py`: starts the helper process, sends it requests, receives its answers."""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rl_agent.errors import ConfigError, SandboxError
from rl_agent.sandboxes.base import SandboxLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

SCRIPT: Final = Path(__file__).with_name("nsexec.py")
ANSWER_BYTES: Final = 1 << 16
READY: Final = b"ready"
ALONE: Final = "alone"
START_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One datagram from the helper."""

    message: Mapping[str, Any]
    fds: Sequence[int] = ()
    closed: bool = False
    """Its side is closed: nothing more comes."""


class Call:
    """One request in flight: a socket on which its answers arrive."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    async def answer(self) -> Answer:
        """The next answer; raises SandboxError if the helper reports that it could not do its work."""
        await readable(self._sock.fileno())
        return self.take()

    def take(self) -> Answer:
        """The answer that has arrived; raises BlockingIOError if there is none yet."""
        try:
            data, fds, _, _ = socket.recv_fds(self._sock, ANSWER_BYTES, 4, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            data, fds = b"", []
        if not data:
            return Answer(message={}, closed=True)
        message = json.loads(data)
        if "error" in message:
            raise HelperError(message["error"], message.get("errno"))
        return Answer(message=message, fds=tuple(fds))

    def fileno(self) -> int:
        """Readable when an answer has arrived."""
        return self._sock.fileno()

    def signal(self, number: int) -> None:
        """Send a signal to the command of an `exec`."""
        with contextlib.suppress(OSError):
            self._sock.send(str(number).encode())

    def stop(self) -> None:
        """Tell the helper to give up; it answers once more."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Forget the request."""
        self._sock.close()


class HelperError(SandboxError):
    """The helper could not do what it was asked."""

    def __init__(self, text: str, number: int | None) -> None:
        super().__init__(text)
        self.errno = number


@contextlib.contextmanager
def machine_must(do: str) -> Iterator[None]:
    """SandboxError for an OSError: no descriptor, process or space left is infrastructure, and may pass."""
    try:
        yield
    except OSError as error:
        raise SandboxError(f"this machine could not {do}: {error}") from error


class Helper:
    """A running helper process. Everything that it started ends with it."""

    def __init__(self, *, cgroup_dirs: Sequence[Path] = ()) -> None:
        """Without root, raises ConfigError where a user may not make namespaces."""
        self._alone = os.geteuid() != 0
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 (our own script)
                [sys.executable, "-I", "-S", str(SCRIPT), str(theirs.fileno()), *([ALONE] if self._alone else [])],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={},  # nothing of this process's environment reaches a sandbox
                cwd="/",
                start_new_session=True,
            )
        self._sock = ours
        if self._alone:
            self._require_namespaces()
        for folder in cgroup_dirs:
            (folder / "cgroup.procs").write_text(str(self._process.pid))

    def _require_namespaces(self) -> None:
        self._sock.settimeout(START_S)
        try:
            said = self._sock.recv(ANSWER_BYTES)
        except TimeoutError:
            said = b"the helper process does not start"
        self._sock.settimeout(None)
        if said == READY:
            return
        self.stop()
        raise ConfigError(
            f"the local sandbox needs root, or user namespaces, and this machine gives neither: {said.decode(errors='replace')}. "
            "Remedy: run as root, allow them (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "
            "kernel.apparmor_restrict_unprivileged_userns), or use another sandbox="
        )

    def call(self, request: Mapping[str, Any], fds: Sequence[int]) -> Call:
        """Send a request. The descriptors are duplicated; the caller still owns its own."""
        body = memory_file(json.dumps({**request, "alone": self._alone}).encode())
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setblocking(False)
            with theirs, contextlib.ExitStack() as unless_sent:
                unless_sent.enter_context(ours)
                self._send(str(request["op"]), [theirs.fileno(), body, *fds])
                unless_sent.pop_all()
                return Call(ours)
        finally:
            os.close(body)

    def _send(self, op: str, fds: Sequence[int]) -> None:
        rights = array.array("i", fds)
        try:
            self._sock.sendmsg([op.encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        except OSError as error:
            raise SandboxLostError(
                f"the local sandbox helper process is gone ({error}); its sandboxes ended with it"
            ) from error

    def stop(self) -> None:
        """End the helper and with it whatever still runs below it."""
        self._sock.close()
        self._process.kill()
        self._process.wait()


def memory_file(content: bytes) -> int:
    """A descriptor of an anonymous file that holds `content`, positioned at its start."""
    fd = os.memfd_create("rl_agent", os.MFD_CLOEXEC)
    view = memoryview(content)
    offset = 0
    while offset < len(content):
        offset += os.pwrite(fd, view[offset:], offset)
    return fd


async def readable(*fds: int) -> None:
    """Wait until one of `fds` can be read (for a pidfd: until its process has ended)."""
    loop = asyncio.get_running_loop()
    await _ready(loop.add_reader, loop.remove_reader, fds)


async def writable(fd: int) -> None:
    """Wait until `fd` takes more, or its other end is closed."""
    loop = asyncio.get_running_loop()
    await _ready(loop.add_writer, loop.remove_writer, [fd])


async def _ready(watch: Callable[..., None], leave: Callable[[int], bool], fds: Sequence[int]) -> None:
    ready = asyncio.Event()
    for fd in fds:
        watch(fd, ready.set)
    try:
        await ready.wait()
    finally:
        for fd in fds:
            leave(fd)


def kill(pidfd: int) -> None:
    """SIGKILL a process that may already be gone."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)

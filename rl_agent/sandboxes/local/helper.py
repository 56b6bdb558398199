"""Client of the helper process `nsexec.py`: starts it, sends requests and receives answers."""

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
    """The helper has closed the socket: no more answers follow."""


class Call:
    """A request in flight, with the socket for its answers."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    async def answer(self) -> Answer:
        """Wait for the next answer. Raises HelperError if the helper reports an error."""
        await readable(self._sock.fileno())
        return self.take()

    def take(self) -> Answer:
        """Return the next answer without waiting. Raises BlockingIOError if none has arrived."""
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
        """Return the descriptor that is readable when an answer has arrived."""
        return self._sock.fileno()

    def signal(self, number: int) -> None:
        """Send a signal to the command of an `exec` request."""
        with contextlib.suppress(OSError):
            self._sock.send(str(number).encode())

    def stop(self) -> None:
        """Tell the helper to kill the command. It answers once more."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()


class HelperError(SandboxError):
    """The helper could not serve a request."""

    def __init__(self, text: str, number: int | None) -> None:
        super().__init__(text)
        self.errno = number


@contextlib.contextmanager
def machine_must(do: str) -> Iterator[None]:
    """Turn OSError into SandboxError: a lack of file descriptors, processes or space is infrastructure and may pass."""
    try:
        yield
    except OSError as error:
        raise SandboxError(f"this machine cannot {do}: {error}") from error


class Helper:
    """A running helper process. All its child processes end with it."""

    def __init__(self, *, cgroup_dirs: Sequence[Path] = ()) -> None:
        """Start the process. Without root, raises ConfigError if user namespaces are not allowed."""
        self._alone = os.geteuid() != 0
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 (our own script)
                [sys.executable, "-I", "-S", str(SCRIPT), str(theirs.fileno()), *([ALONE] if self._alone else [])],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={},  # keeps this process's environment out of sandboxes
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
            said = b"the helper process did not start"
        self._sock.settimeout(None)
        if said == READY:
            return
        self.stop()
        raise ConfigError(
            f"sandbox=local needs root, or user namespaces, which this machine does not allow: {said.decode(errors='replace')}. "
            "Run as root, allow them (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "
            "kernel.apparmor_restrict_unprivileged_userns), or choose another sandbox."
        )

    def call(self, request: Mapping[str, Any], fds: Sequence[int]) -> Call:
        """Send a request. It gets duplicates of the descriptors; the caller keeps its own."""
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
                f"the helper process of local sandboxes is gone ({error}), and its sandboxes with it"
            ) from error

    def stop(self) -> None:
        """Kill the helper and all its child processes."""
        self._sock.close()
        self._process.kill()
        self._process.wait()


def memory_file(content: bytes) -> int:
    """Return a descriptor of an anonymous file with `content`, positioned at its start."""
    fd = os.memfd_create("rl_agent", os.MFD_CLOEXEC)
    view = memoryview(content)
    offset = 0
    while offset < len(content):
        offset += os.pwrite(fd, view[offset:], offset)
    return fd


async def readable(*fds: int) -> None:
    """Wait until one of `fds` is readable (a pidfd: until its process has exited)."""
    loop = asyncio.get_running_loop()
    await _ready(loop.add_reader, loop.remove_reader, fds)


async def writable(fd: int) -> None:
    """Wait until `fd` is writable, or its other end is closed."""
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
    """Send SIGKILL to a process that may have exited."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)

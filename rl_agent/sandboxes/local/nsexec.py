"""Privileged helper process that boots sandboxes, and starts commands, file copies and listeners in them.

Runs as `python -I -S nsexec.py FD [alone]` with the standard library only. It imports everything at the start, because the
interpreter's files are unreachable after it has joined a sandbox's namespaces. It is a fork server: a fork costs a fraction of
starting an interpreter for every command.

A request is one datagram on FD with descriptors: first the socket for answers (`ctl`), second a memfd with the request as JSON,
then those that the operation needs. A forked child serves it and answers on `ctl` with JSON datagrams:

    boot    [payload, stderr]                  -> {"pid"}, then end of file when bubblewrap has taken over
    exec    [pidfd, stdin, stdout, stderr]     -> {"code"}, or {"killed"} after the client has shut down `ctl`;
                                                  with "announce", {"pid"} before. A number on `ctl` is a signal to send
    write   [pidfd, source]                    -> {}
    read    [pidfd]                            -> {} with the opened file
    listen  [pidfd]                            -> {} with the listening socket

or `{"error", "errno"}`. The datagram's text is the operation: only a boot's child starts a pid namespace.

A boot's child is process 1 of a pid namespace, so that killing it always kills everything in it. bubblewrap creates a second
namespace inside, whose first process reaps orphans. When FD reaches its end (the owner is gone), this process exits, and
PR_SET_PDEATHSIG kills all sandboxes.
"""

from __future__ import annotations

# No pathlib: its import would be a large part of the start-up time.
# ruff: noqa: PTH101, PTH102, PTH103, PTH120, PTH123, PTH208, PTH211
import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import socket
import stat
import sys
import time
from typing import Any, Final, NoReturn

sys.path.insert(0, __file__.rsplit("/", 4)[0])  # not on the path because of -I
from rl_agent.sandboxes.local.nscalls import (
    CLONE_ALL,
    CLONE_NEWNET,
    CLONE_NEWNS,
    MS_REC_PRIVATE,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    answer,
    check,
    default_signals,
    drop_capabilities,
    fork_into_pid_namespace,
    join_cgroups,
    libc,
    map_user,
    mount,
    read_text,
    refuse_calls,
)

CANNOT_EXECUTE: Final = 126
NEW_NAMESPACE: Final = b"boot"
READY: Final = b"ready"


def _make_entry(upper: str, entry: dict[str, Any], *, alone: bool) -> None:
    """Create one entry of the upper layer, see `images.Entry`."""
    path, kind = upper + entry["path"], entry["kind"]
    if kind == "whiteout":
        os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))
        return
    if kind == "link":
        os.symlink(entry["text"], path)
        return
    if kind == "file":
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.write(fd, entry["text"].encode())
        os.close(fd)
    else:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
        if kind == "opaque":
            os.setxattr(path, f"{'user' if alone else 'trusted'}.overlay.opaque", b"y")
    if not alone:
        os.chown(path, entry["uid"], entry["gid"])
    os.chmod(path, entry["mode"])


def _memory_file(content: bytes) -> int:
    fd = os.memfd_create("sandbox", 0)
    os.pwrite(fd, content, 0)
    return fd


def boot(request: dict[str, Any], fds: list[int]) -> NoReturn:
    """Mount the overlay in a private mount namespace and exec bubblewrap. `fds`: the payload's socket, stderr."""
    base = request["base"]
    check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if int(read_text("/proc/self/stat").rpartition(")")[2].split()[1]) != request["helper"]:
        os._exit(0)  # the helper exited before the line above
    join_cgroups(request["cgroups"])
    check(libc.unshare(CLONE_NEWNS), "unshare")
    mount("none", "/", "none", MS_REC_PRIVATE, "")
    if request["tmpfs_options"] is not None:
        mount("tmpfs", base, "tmpfs", 0, request["tmpfs_options"])
    for name in ("upper", "work", "merged"):
        os.mkdir(f"{base}/{name}", 0o755)
    for entry in request["entries"]:
        _make_entry(f"{base}/upper", entry, alone=request["alone"])
    mount("overlay", f"{base}/merged", "overlay", 0, request["overlay_options"])
    os.setsid()
    for target, fd in ((0, fds[0]), (1, fds[0]), (2, fds[1])):
        os.dup2(fd, target)
    default_signals()
    arguments = _memory_file(b"".join(word.encode() + b"\0" for word in request["arguments"]))
    os.execve(request["bwrap"], ["bwrap", "--args", str(arguments), "--", *request["payload"]], {})  # noqa: S606 (no shell is the point)


class _User:
    """User of a command, from the sandbox's own /etc/passwd and /etc/group."""

    def __init__(self, name: str) -> None:
        rows = [line.split(":") for line in read_text("/etc/passwd").splitlines()]
        row = next((row for row in rows if len(row) > 5 and row[0] == name), None)
        if row is None:
            if name != "root":
                raise LookupError(f"unknown user {name!r} (not in the sandbox's /etc/passwd)")
            row = ["root", "x", "0", "0", "", "/root"]
        self.name, self.uid, self.gid, self.home = name, int(row[2]), int(row[3]), row[5]
        groups = [line.split(":") for line in read_text("/etc/group").splitlines()]
        self.groups = [self.gid, *(int(g[2]) for g in groups if len(g) > 3 and name in g[3].split(","))]

    def become(self, *, alone: bool, seccomp: str = "") -> None:
        """Switch to this user and drop the helper's privileges. `alone`: the sandbox has one user, under this user's id."""
        if alone and self.uid != 0:
            map_user(self.uid, self.gid)
        refuse_calls(seccomp)
        drop_capabilities()
        if not alone:
            os.setgroups(self.groups)
            os.setresgid(self.gid, self.gid, self.gid)
            os.setresuid(self.uid, self.uid, self.uid)
        if self.uid != 0:
            libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _enter(request: dict[str, Any], pidfd: int) -> None:
    """Join the sandbox and fork into its pid namespace. Returns in the child; the calling process exits."""
    join_cgroups(request["cgroups"])
    # Only root may join the machine's own network, in which this process already is.
    check(libc.setns(pidfd, CLONE_ALL if request["own_network"] else CLONE_ALL & ~CLONE_NEWNET), "setns")
    os.close(pidfd)
    if os.fork():
        os._exit(0)
    os.chdir("/")


def _be_nice(value: int) -> None:
    if value:
        os.nice(value)
        # With autogroup scheduling, niceness counts between sessions only if the session's group has it too.
        with contextlib.suppress(OSError), open("/proc/self/autogroup", "w", encoding="utf-8") as file:
            file.write(str(value))


def _start(user: _User, request: dict[str, Any], fds: list[int]) -> NoReturn:
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
    try:
        os.setsid()
        _be_nice(request["nice"])
        for name, value in request["rlimits"].items():
            limits = (ctypes.c_ulong * 2)(value, value)
            check(libc.setrlimit(int(name), limits), "setrlimit")
        for fd in range(3):  # else /dev/stdout could not be opened: the host's root owns it
            if not request["alone"] and stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.fchown(fd, user.uid, user.gid)
        user.become(alone=request["alone"], seccomp=request["seccomp"])
        os.umask(0o022)
        default_signals()
        environment = {"HOME": user.home, "USER": user.name, "LOGNAME": user.name, **request["env"]}
        os.chdir(request["cwd"] or user.home)
        os.closerange(3, 1 << 16)
        os.execve(request["argv"][0], request["argv"], environment)  # noqa: S606 (no shell is the point)
    except OSError as error:
        os.write(2, f"sandbox: {error}\n".encode())
    os._exit(CANNOT_EXECUTE)


def _parents() -> dict[int, int]:
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                found[int(name)] = int(read_text(f"/proc/{name}/stat").rpartition(")")[2].split()[1])
    return found


def _kill_descendants() -> None:
    """Kill all descendants. Orphans are re-parented to this process, so daemons cannot escape."""
    for _ in range(500):
        parents, below, grew = _parents(), {os.getpid()}, True
        while grew:
            more = {pid for pid, parent in parents.items() if parent in below} - below
            grew = bool(more)
            below |= more
        below.discard(os.getpid())
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not below:
            return
        time.sleep(0.002)


def run(ctl: int, request: dict[str, Any], fds: list[int]) -> None:
    """Run one command in the sandbox's pid namespace, wait for it and reap its orphans."""
    _enter(request, fds[0])
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    user = _User(request["user"])
    wake_in, wake_out = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_out, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    pid = os.fork()
    if pid == 0:
        _start(user, request, fds[1:])
    # Root in the sandbox may trace this process, so it is confined like the command. The filter comes first.
    refuse_calls(request["seccomp"])
    drop_capabilities()
    for fd in fds[1:]:
        os.close(fd)
    if request.get("announce"):
        answer(ctl, {"pid": pid})
    poller = select.poll()
    poller.register(ctl, select.POLLIN)
    poller.register(wake_in, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poller.poll()}
        if ctl in ready:
            number = os.read(ctl, 16)
            if not number:
                _kill_descendants()
                answer(ctl, {"killed": True})
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, int(number))
        with contextlib.suppress(BlockingIOError):
            os.read(wake_in, 4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                ended, status = os.waitpid(-1, os.WNOHANG)
                if ended == 0:
                    break
                if ended == pid:
                    code = os.waitstatus_to_exitcode(status)
                    answer(ctl, {"code": code if code >= 0 else 128 - code})
                    return


def write(ctl: int, request: dict[str, Any], fds: list[int]) -> None:
    """Copy the content of a descriptor into a file of the sandbox, as one of its users."""
    _enter(request, fds[0])
    user = _User(request["user"])
    user.become(alone=request["alone"])
    os.umask(0o022)
    path = request["path"]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    while chunk := os.read(fds[1], 1 << 20):
        view = memoryview(chunk)
        while view:
            view = view[os.write(fd, view) :]
    if request["mode"] is not None:
        os.fchmod(fd, request["mode"])
    answer(ctl, {})


def read(ctl: int, request: dict[str, Any], fds: list[int]) -> None:
    """Open a regular file of the sandbox, as one of its users, and send its descriptor."""
    _enter(request, fds[0])
    user = _User(request["user"])
    user.become(alone=request["alone"])
    fd = os.open(request["path"], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    answer(ctl, {}, (fd,))


def listen(ctl: int, request: dict[str, Any], fds: list[int]) -> None:
    """Open a TCP listener in the sandbox's network namespace and send its descriptor."""
    check(libc.setns(fds[0], CLONE_NEWNET), "setns")
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", request["port"]))
        sock.listen(128)
        answer(ctl, {}, (sock.fileno(),))


OPERATIONS: Final = {"exec": run, "write": write, "read": read, "listen": listen}


def _serve_one(fds: list[int], helper: int) -> NoReturn:
    ctl = fds[0]
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        request = json.loads(os.pread(fds[1], os.fstat(fds[1]).st_size, 0))
        os.close(fds[1])
        if request["op"] == "boot":
            boot({**request, "helper": helper}, fds[2:])
        OPERATIONS[request["op"]](ctl, request, fds[2:])
    except BaseException as error:  # noqa: BLE001 (the owner must get every error)
        answer(ctl, {"error": f"{error}", "errno": getattr(error, "errno", None)})
    os._exit(0)


def _hide_arguments() -> None:
    """Overwrite the command line, which a sandbox can read from its processes: it contains paths of the host."""
    fields = read_text("/proc/self/stat").rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    ctypes.memmove(start, b"sandbox".ljust(end - start, b"\0"), end - start)


def serve(sock: socket.socket) -> None:
    """Serve requests until the owner has closed the socket."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps children and orphans
    check(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")
    _hide_arguments()
    helper = os.getpid()
    while True:
        data, fds, _, _ = socket.recv_fds(sock, 16, 8, socket.MSG_CMSG_CLOEXEC)
        if not data:
            os._exit(0)
        booting = data == NEW_NAMESPACE
        try:
            pid = fork_into_pid_namespace() if booting else os.fork()
        except OSError as error:
            answer(fds[0], {"error": f"fork: {error}", "errno": error.errno})
            pid = -1
        if pid == 0:
            sock.close()
            _serve_one(fds, helper)
        if booting:
            answer(fds[0], {"pid": pid})
        for fd in fds:
            os.close(fd)


def main() -> None:
    """Serve the owner. Without root (`alone`), first create a user namespace and report whether that is allowed."""
    owner = socket.socket(fileno=int(sys.argv[1]))
    if "alone" in sys.argv:
        try:
            map_user(0, 0)
        except OSError as error:
            owner.send(str(error).encode())
            return
        owner.send(READY)
    serve(owner)


if __name__ == "__main__":
    main()

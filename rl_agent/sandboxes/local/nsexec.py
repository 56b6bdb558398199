"""The privileged helper: one small process that boots sandboxes and starts commands, file copies and listeners inside them.

Runs as `python -I -S nsexec.py FD` with the standard library only: after it joined a sandbox's namespaces the interpreter's
own files are out of reach, so everything is imported at the start. It is a fork server: importing Python once and forking
costs a fraction of starting an interpreter for every command.

A request is one datagram on FD that carries descriptors: first the request's own socket (`ctl`), second a memfd with the
request as JSON, then what the operation needs. A forked child serves it and answers on `ctl`, one JSON datagram an answer:

    boot    [payload, stderr]                  -> {"pid"}, then end of file when bubblewrap has taken over
    exec    [pidfd, stdin, stdout, stderr]     -> {"code"}, or {"killed"} after `ctl` was shut down by the other side;
                                                  with "announce", {"pid"} before. A number on `ctl` is a signal to send
    write   [pidfd, source]                    -> {}
    read    [pidfd]                            -> {} with the opened file
    listen  [pidfd]                            -> {} with the listening socket

or `{"error", "errno"}`. The datagram's text says whether the child starts a pid namespace (a boot) or not.

A boot's child is process 1 of a pid namespace, so that killing it leaves nothing, at whatever moment; bubblewrap makes a
second namespace inside, whose first process reaps. When FD reaches its end (the owner is gone) this process exits, and
PR_SET_PDEATHSIG ends every sandbox and everything in it.
"""

from __future__ import annotations

# pathlib would be a good part of the start-up time.
# ruff: noqa: PTH101, PTH102, PTH103, PTH120, PTH123, PTH208, PTH211
import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import stat
import sys
import time
from typing import Any, Final, NoReturn

CLONE_NEWNS: Final = 0x20000
CLONE_NEWNET: Final = 0x40000000
CLONE_ALL: Final = CLONE_NEWNS | CLONE_NEWNET | 0x2000000 | 0x4000000 | 0x8000000 | 0x20000000  # + cgroup uts ipc pid
MS_REC_PRIVATE: Final = 0x4000 | 0x40000
CLONE_NEWPID: Final = 0x20000000
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 1, 24, 36, 38, 22
SECCOMP_MODE_FILTER: Final = 2
CAPABILITY_VERSION_3: Final = 0x20080522
# What Docker grants, less MKNOD and NET_RAW: CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE
# SYS_CHROOT AUDIT_WRITE SETFCAP.
KEPT_CAPABILITIES: Final = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 29, 31})
LAST_CAPABILITY: Final = 63
CANNOT_EXECUTE: Final = 126
NEW_NAMESPACE: Final = b"boot"

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    arguments = [text.encode() for text in (source, target, kind)]
    _check(
        _libc.mount(*arguments, ctypes.c_ulong(flags), options.encode()), f"mount {kind} on {target} ({options[:300]})"
    )


def _answer(ctl: int, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    sock = socket.socket(fileno=os.dup(ctl))
    with contextlib.suppress(OSError), sock:  # the other side may be gone
        socket.send_fds(sock, [json.dumps(message).encode()], list(fds))


def _join_cgroups(paths: list[str]) -> None:
    for path in paths:
        with open(f"{path}/cgroup.procs", "w", encoding="ascii") as file:
            file.write("0")


def _default_signals() -> None:
    for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def _make_entry(upper: str, entry: dict[str, Any]) -> None:
    """One item of the upper layer, see `images.Entry`."""
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
            os.setxattr(path, "trusted.overlay.opaque", b"y")
    os.chown(path, entry["uid"], entry["gid"])
    os.chmod(path, entry["mode"])


def _memory_file(content: bytes) -> int:
    fd = os.memfd_create("sandbox", 0)
    os.pwrite(fd, content, 0)
    return fd


def boot(ctl: int, request: dict[str, Any], fds: list[int]) -> NoReturn:
    """Mount the overlay in a private mount namespace and become bubblewrap."""
    base = request["base"]
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if int(_read_text("/proc/self/stat").rpartition(")")[2].split()[1]) != request["helper"]:
        os._exit(0)  # the helper ended before the line above
    _join_cgroups(request["cgroups"])
    _check(_libc.unshare(CLONE_NEWNS), "unshare")
    _mount("none", "/", "none", MS_REC_PRIVATE, "")
    if request["tmpfs_options"] is not None:
        _mount("tmpfs", base, "tmpfs", 0, request["tmpfs_options"])
    for name in ("upper", "work", "merged"):
        os.mkdir(f"{base}/{name}", 0o755)
    for entry in request["entries"]:
        _make_entry(f"{base}/upper", entry)
    _mount("overlay", f"{base}/merged", "overlay", 0, request["overlay_options"])
    os.setsid()
    for target, fd in ((0, fds[0]), (1, fds[0]), (2, fds[1])):
        os.dup2(fd, target)
    _default_signals()
    arguments = _memory_file(b"".join(word.encode() + b"\0" for word in request["arguments"]))
    payload = request["payload"]
    if request["program"]:
        payload = [f"/proc/self/fd/{_memory_file(bytes.fromhex(request['program']))}"]
    os.execve(request["bwrap"], ["bwrap", "--args", str(arguments), "--", *payload], {})  # noqa: S606 (no shell is the point)


class _User:
    """Who a command runs as, from the sandbox's own /etc/passwd and /etc/group."""

    def __init__(self, name: str) -> None:
        rows = [line.split(":") for line in _read_text("/etc/passwd").splitlines()]
        row = next((row for row in rows if len(row) > 5 and row[0] == name), None)
        if row is None:
            if name != "root":
                raise LookupError(f"no user {name!r} in the sandbox's /etc/passwd")
            row = ["root", "x", "0", "0", "", "/root"]
        self.name, self.uid, self.gid, self.home = name, int(row[2]), int(row[3]), row[5]
        groups = [line.split(":") for line in _read_text("/etc/group").splitlines()]
        self.groups = [self.gid, *(int(g[2]) for g in groups if len(g) > 3 and name in g[3].split(","))]

    def become(self) -> None:
        """Give up the helper's privileges for the user's."""
        os.setgroups(self.groups)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        if self.uid != 0:
            _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _drop_capabilities() -> None:
    for number in range(LAST_CAPABILITY + 1):
        if number not in KEPT_CAPABILITIES:
            _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    mask = sum(1 << number for number in KEPT_CAPABILITIES)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)(mask, mask, 0, 0, 0, 0)
    _check(_libc.capset(header, data), "capset")


def _refuse_calls(program: str) -> None:
    """Install a seccomp filter for this process and all below it, see `seccomp.py`; while still privileged."""
    code = bytes.fromhex(program)
    if code:
        steps = ctypes.create_string_buffer(code, len(code))
        header = (ctypes.c_uint64 * 2)(len(code) // 8, ctypes.addressof(steps))
        _check(_libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0), "seccomp")


def _enter(request: dict[str, Any], pidfd: int) -> None:
    """Join the sandbox; returns in a child that lives in its pid namespace, the calling process ends."""
    _join_cgroups(request["cgroups"])
    _check(_libc.setns(pidfd, CLONE_ALL), "setns")
    os.close(pidfd)
    if os.fork():
        os._exit(0)
    os.chdir("/")


def _be_nice(value: int) -> None:
    if value:
        os.nice(value)
        # With autogroup scheduling, niceness counts between sessions only when it is set on the session's group.
        with contextlib.suppress(OSError), open("/proc/self/autogroup", "w", encoding="ascii") as file:
            file.write(str(value))


def _start(user: _User, request: dict[str, Any], fds: list[int]) -> NoReturn:
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
    try:
        os.setsid()
        _be_nice(request["nice"])
        for name, value in request["rlimits"].items():
            limits = (ctypes.c_ulong * 2)(value, value)
            _check(_libc.setrlimit(int(name), limits), "setrlimit")
        user.become()
        os.umask(0o022)
        _default_signals()
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
                found[int(name)] = int(_read_text(f"/proc/{name}/stat").rpartition(")")[2].split()[1])
    return found


def _kill_descendants() -> None:
    """Kill everything below this process; orphans are re-parented to it, so nothing escapes by daemonising."""
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
    """Run one command; waits for it in the sandbox's pid namespace as the reaper of its orphans."""
    _enter(request, fds[0])
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    user = _User(request["user"])
    _refuse_calls(request.get("seccomp", ""))
    _drop_capabilities()
    wake_in, wake_out = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_out, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    pid = os.fork()
    if pid == 0:
        _start(user, request, fds[1:])
    for fd in fds[1:]:
        os.close(fd)
    if request.get("announce"):
        _answer(ctl, {"pid": pid})
    poller = select.poll()
    poller.register(ctl, select.POLLIN)
    poller.register(wake_in, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poller.poll()}
        if ctl in ready:
            number = os.read(ctl, 16)
            if not number:
                _kill_descendants()
                _answer(ctl, {"killed": True})
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
                    _answer(ctl, {"code": code if code >= 0 else 128 - code})
                    return


def write(ctl: int, request: dict[str, Any], fds: list[int]) -> None:
    """Copy a descriptor's content into a file of the sandbox, as one of its users."""
    _enter(request, fds[0])
    user = _User(request["user"])
    _drop_capabilities()
    user.become()
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
    _answer(ctl, {})


def read(ctl: int, request: dict[str, Any], fds: list[int]) -> None:
    """Open a regular file of the sandbox, as one of its users, and hand it over."""
    _enter(request, fds[0])
    user = _User(request["user"])
    _drop_capabilities()
    user.become()
    fd = os.open(request["path"], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise ValueError("not a regular file")
    _answer(ctl, {}, (fd,))


def listen(ctl: int, request: dict[str, Any], fds: list[int]) -> None:
    """Open a TCP listener in the sandbox's network namespace and hand it over."""
    _check(_libc.setns(fds[0], CLONE_NEWNET), "setns")
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", request["port"]))
        sock.listen(128)
        _answer(ctl, {}, (sock.fileno(),))


OPERATIONS: Final = {"boot": boot, "exec": run, "write": write, "read": read, "listen": listen}


def _serve_one(fds: list[int], helper: int) -> NoReturn:
    ctl = fds[0]
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        request = json.loads(os.pread(fds[1], os.fstat(fds[1]).st_size, 0))
        os.close(fds[1])
        OPERATIONS[request["op"]](ctl, {**request, "helper": helper}, fds[2:])
    except BaseException as error:  # noqa: BLE001 (whatever it was, the owner must hear of it)
        _answer(ctl, {"error": f"{error}", "errno": getattr(error, "errno", None)})
    os._exit(0)


def _hide_arguments() -> None:
    """Sandboxes see the processes of their own commands, which carry this one's command line: no paths of the host in it."""
    fields = _read_text("/proc/self/stat").rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    ctypes.memmove(start, b"sandbox".ljust(end - start, b"\0"), end - start)


def serve(sock: socket.socket) -> None:
    """Serve requests until the owner is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children and orphans below are reaped by the kernel
    _check(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")
    _hide_arguments()
    helper, own_namespace = os.getpid(), os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    while True:
        data, fds, _, _ = socket.recv_fds(sock, 16, 8, socket.MSG_CMSG_CLOEXEC)
        if not data:
            os._exit(0)
        booting = data == NEW_NAMESPACE
        try:
            if booting:
                _check(_libc.unshare(CLONE_NEWPID), "unshare")
            pid = os.fork()
        except OSError as error:
            _answer(fds[0], {"error": f"fork: {error}", "errno": error.errno})
            pid = -1
        if pid == 0:
            sock.close()
            _serve_one(fds, helper)
        if booting:
            _check(_libc.setns(own_namespace, CLONE_NEWPID), "setns")
            _answer(fds[0], {"pid": pid})
        for fd in fds:
            os.close(fd)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))

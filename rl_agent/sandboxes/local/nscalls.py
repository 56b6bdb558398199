"""System calls that Python lacks, for the helper (see `nsexec.py`)."""

from __future__ import annotations

# ruff: noqa: PTH123
import contextlib
import ctypes
import json
import os
import signal
import socket
from typing import Any, Final

CLONE_NEWNS: Final = 0x20000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000
CLONE_ALL: Final = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | 0x2000000 | 0x4000000 | 0x8000000  # + cgroup uts ipc
MS_REC_PRIVATE: Final = 0x4000 | 0x40000
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 1, 24, 36, 38, 22
SECCOMP_MODE_FILTER: Final = 2
CAPABILITY_VERSION_3: Final = 0x20080522
# What Docker grants, less MKNOD and NET_RAW: CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE
# SYS_CHROOT AUDIT_WRITE SETFCAP.
KEPT_CAPABILITIES: Final = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 29, 31})
LAST_CAPABILITY: Final = 63
SYS_CLONE: Final = {"x86_64": 56}
SYS_CLONE_ELSEWHERE: Final = 220

libc: Final = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    """Raise OSError for a failed call."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    """Mount a file system."""
    arguments = [text.encode() for text in (source, target, kind)]
    check(
        libc.mount(*arguments, ctypes.c_ulong(flags), options.encode()), f"mount {kind} on {target} ({options[:300]})"
    )


def fork_into_pid_namespace() -> int:
    """Fork. The child is process 1 of a new pid namespace, and may only exec another program."""
    # PyDLL keeps the interpreter's lock in the only thread, in both processes.
    number = SYS_CLONE.get(os.uname().machine, SYS_CLONE_ELSEWHERE)
    pid: int = ctypes.PyDLL(None, use_errno=True).syscall(number, CLONE_NEWPID | signal.SIGCHLD, 0, 0, 0, 0)
    if pid < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"clone: {os.strerror(number)}")
    return pid


def map_user(uid: int, gid: int) -> None:
    """Enter a user namespace in which only this process's user exists, with id `uid`."""
    outer = {"uid_map": f"{uid} {os.geteuid()} 1", "gid_map": f"{gid} {os.getegid()} 1"}
    check(libc.unshare(CLONE_NEWUSER), "unshare a user namespace")
    for name, text in {"setgroups": "deny", **outer}.items():
        with open(f"/proc/self/{name}", "w", encoding="utf-8") as file:
            file.write(text)


def drop_capabilities() -> None:
    """Drop all capabilities but KEPT_CAPABILITIES, permanently."""
    for number in range(LAST_CAPABILITY + 1):
        if number not in KEPT_CAPABILITIES:
            libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    mask = sum(1 << number for number in KEPT_CAPABILITIES)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)(mask, mask, 0, 0, 0, 0)
    check(libc.capset(header, data), "capset")


def refuse_calls(program: str) -> None:
    """Install a seccomp filter (see `seccomp.py`) for this process and its children. Needs privileges."""
    code = bytes.fromhex(program)
    if code:
        steps = ctypes.create_string_buffer(code, len(code))
        header = (ctypes.c_uint64 * 2)(len(code) // 8, ctypes.addressof(steps))
        check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0), "seccomp")


def answer(ctl: int, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """Send an answer, with descriptors."""
    sock = socket.socket(fileno=os.dup(ctl))
    with contextlib.suppress(OSError), sock:  # the client may be gone
        socket.send_fds(sock, [json.dumps(message).encode()], list(fds))


def join_cgroups(paths: list[str]) -> None:
    """Move this process into control groups."""
    for path in paths:
        with open(f"{path}/cgroup.procs", "w", encoding="utf-8") as file:
            file.write("0")


def default_signals() -> None:
    """Reset the signal handlers that Python and the helper changed."""
    for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def read_text(path: str) -> str:
    """Return a file's text; empty if it does not exist."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""

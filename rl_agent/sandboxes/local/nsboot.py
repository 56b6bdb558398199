"""The helper's half that boots: from a child in a new pid namespace to bubblewrap (see `nsexec.py`)."""

from __future__ import annotations

# ruff: noqa: PTH101, PTH102, PTH211
import contextlib
import os
import signal
import stat
from typing import Any, NoReturn

from rl_agent.sandboxes.local.nscalls import (
    CLONE_NEWNS,
    MS_REC_PRIVATE,
    PR_SET_PDEATHSIG,
    check,
    default_signals,
    join_cgroups,
    libc,
    mount,
    read_text,
)


def _make_entry(upper: str, entry: dict[str, Any], *, alone: bool) -> None:
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
            os.setxattr(path, f"{'user' if alone else 'trusted'}.overlay.opaque", b"y")
    if not alone:
        os.chown(path, entry["uid"], entry["gid"])
    os.chmod(path, entry["mode"])


def _memory_file(content: bytes) -> int:
    fd = os.memfd_create("sandbox", 0)
    os.pwrite(fd, content, 0)
    return fd


def boot(request: dict[str, Any], fds: list[int]) -> NoReturn:
    """Mount the overlay in a private mount namespace and become bubblewrap. `fds`: payload's socket, stderr."""
    base = request["base"]
    check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if int(read_text("/proc/self/stat").rpartition(")")[2].split()[1]) != request["helper"]:
        os._exit(0)  # the helper ended before the line above
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

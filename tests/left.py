"""What a test may leave behind on the machine, and how to see it while other tests run beside it."""

from __future__ import annotations

from pathlib import Path

import psutil


def mounts() -> set[str]:
    """Mount points; no network namespaces: a test beside this one may just have some, and looks after them itself."""
    points = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    return {point for point in points if not point.startswith("/run/netns")}


def children() -> set[int]:
    """Process ids of all that runs below this process."""
    return {child.pid for child in psutil.Process().children(recursive=True) if _counts(child)}


def _counts(process: psutil.Process) -> bool:
    """All but zombies, and the helper that Python starts once for spawned processes and keeps to its own end."""
    try:
        helper = any("multiprocessing.resource_tracker" in word for word in process.cmdline())
        return not helper and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

"""Image `host` for whoever is not root: there is no overlay over `/`, so its parts are put together in a folder.

In a user namespace, the kernel takes no file system as a lower layer that has others mounted in it, and lets nobody write what
root owns. So `/usr` and `/etc` are bound read-only, credentials in them covered, and the rest is empty.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rl_agent.sandboxes.local import images
from rl_agent.sandboxes.local.images import Entry, Kind, Layout

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMITS: Final = (
    "local sandboxes run without root, in user namespaces. There is one user in them: `agent` and `root` differ in name only, own "
    "the same files and may kill all processes, with which the sandbox ends; image `host` has /usr and /etc read-only. Processes are bounded for all sandboxes "
    "together, memory a process, CPU time not at all."
)


def host(folder: Path, visible: Sequence[str]) -> Layout:
    """Make the image in `folder`; as `images.resolve` for those who are root."""
    lower = folder / "lower"
    lower.mkdir(parents=True)
    binds = [(path, path) for path in visible]
    for name in sorted(images.KEPT_TOP):
        source = Path("/", name)
        if source.is_symlink():
            (lower / name).symlink_to(source.readlink())
        elif source.is_dir():
            (lower / name).mkdir()
            binds.append((str(source), str(source)))
    empty = {**{f"/{name}": mode for name, mode in images.EMPTY_TOP.items()}, "/var": 0o755, **images.EMPTY_BELOW}
    for path, mode in empty.items():
        target = lower / path.lstrip("/")
        target.mkdir()
        target.chmod(mode)
    hidden, covered = _secrets()
    accounts, entries = _accounts(folder)
    if python := images.hidden_python():
        binds.append((python, images.HOST_PYTHON))  # by its path only: what PATH names is read-only
    resolver = os.path.realpath("/etc/resolv.conf")
    return Layout(
        lower=str(lower),
        entries=images.ordered(str(lower), entries),
        binds=[*binds, *covered, *accounts],
        host_network_binds=[(resolver, resolver)] if Path(resolver).is_file() and not images.shown(resolver) else [],
        hidden=[*images.project_places(), *hidden],
    )


def _secrets() -> tuple[list[str], list[tuple[str, str]]]:
    """Folders to show empty, and files to cover. What this user cannot read needs neither: it cannot inside either."""
    folders, files = [], []
    for path in images.secret_places():
        if os.access(path, os.R_OK) and not Path(path).is_symlink():
            if Path(path).is_dir():
                folders.append(path)
            else:
                files.append((os.devnull, path))
    return folders, files


def _accounts(folder: Path) -> tuple[list[tuple[str, str]], list[Entry]]:
    """The account files with the agent in them, to be bound over the machine's, and the agent's home."""
    binds, entries = [], []
    for entry in images.users("/"):
        if entry.kind is not Kind.FILE:
            entries.append(entry)
        elif Path(entry.path).exists():
            file = folder / Path(entry.path).name
            file.write_text(entry.text)
            file.chmod(0o644)
            binds.append((str(file), entry.path))
    return binds, entries

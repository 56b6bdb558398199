"""Images of local sandboxes: the read-only lower layer, and the first content of the upper layer.

`host` is this machine's own file system, reduced to the system folders of KEPT_TOP, without credentials and without this
project. `dir:/path` is a root file system in a folder. `oci:/path` is a container image, as a layout's folder or an archive,
which is unpacked once.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import rl_agent
from rl_agent.errors import ImageError
from rl_agent.sandboxes.local import oci

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

AGENT: Final = "agent"
FIRST_AGENT_UID: Final = 1000
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
KEPT_TOP: Final = frozenset({"bin", "etc", "lib", "lib32", "lib64", "libx32", "sbin", "usr"})
EMPTY_TOP: Final = {"home": 0o755, "mnt": 0o755, "opt": 0o755, "root": 0o700, "run": 0o755, "sys": 0o755, "tmp": 0o1777}
EMPTY_BELOW: Final = {"/var/cache": 0o755, "/var/lib": 0o755, "/var/log": 0o755, "/var/tmp": 0o1777}  # noqa: S108
"""Folders that programs expect in `/var`, which is empty otherwise."""
CREDENTIAL_PLACES: Final = (
    *("/etc/apt/auth.conf", "/etc/apt/auth.conf.d", "/etc/boto.cfg", "/etc/cloud", "/etc/containers", "/etc/crypttab"),
    *("/etc/docker", "/etc/environment", "/etc/fstab", "/etc/gitconfig", "/etc/kubernetes", "/etc/netrc", "/etc/npmrc"),
    *("/etc/pip.conf", "/etc/profile.d", "/etc/rancher", "/etc/ssh", "/etc/ssl/private", "/etc/sudoers"),
    *("/etc/sudoers.d", "/etc/wireguard", "/usr/etc", "/usr/local/etc"),
)
DEPTH_OF_SYSTEM_FOLDERS: Final = 3
"""Number of parts of `/usr/lib`. A working directory that is not deeper is a system folder, not a project to hide."""
HOST_PYTHON: Final = "/opt/rl_agent/python"
WITHOUT_ROOT: Final = (
    "local sandboxes run without root, in user namespaces. They have one user: `agent` and `root` differ in name only, own the "
    "same files and can kill all processes, which ends the sandbox. Image `host` has read-only /usr and /etc. The limit on processes "
    "counts those of all sandboxes, the limit on memory holds per process, and CPU time has no limit."
)


class Kind(StrEnum):
    """Kind of an entry of the upper layer."""

    DIR = "dir"
    OPAQUE = "opaque"
    """A folder that hides the content of the image's folder."""
    WHITEOUT = "whiteout"
    """A deletion: hides the image's entry."""
    FILE = "file"
    LINK = "link"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of the upper layer."""

    path: str
    kind: Kind
    mode: int = 0o755
    uid: int = 0
    gid: int = 0
    text: str = ""
    """Content of a file, target of a link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A resolved image."""

    lower: str
    entries: Sequence[dict[str, Any]]
    """`Entry` values for the helper, parents first."""
    binds: Sequence[tuple[str, str]] = ()
    """Read-only mounts: host path, path in the sandbox."""
    host_network_binds: Sequence[tuple[str, str]] = ()
    """More mounts for sandboxes with the host's network: name resolution needs them."""
    hidden: Sequence[str] = ()
    """Folders in a mount that are covered with an empty one."""


def resolve(image: str, *, visible: Iterable[str] = (), images_dir: Path | None = None) -> Layout:
    """Return the layout of an image. Raises ImageError if it does not exist. `images_dir`: cache of unpacked container images."""
    if image == "host":
        return _host(tuple(visible))
    kind, _, path = image.partition(":")
    if kind == "oci" and path.startswith("/"):
        cache = images_dir or Path.home() / ".cache" / "rl_agent" / "images"
        kind, path = "dir", str(oci.root_of(Path(path), cache))
    if kind == "dir" and path.startswith("/"):
        if not Path(path, "bin").is_dir():
            raise ImageError(
                f"image {image!r}: {path} is not a root file system (it has no bin/). Create one, for example with "
                f"`mmdebstrap --include=bash,git,python3 bookworm {path}`, or use image `host`."
            )
        entries = [*_users(path), Entry(path="/tmp", kind=Kind.DIR, mode=0o1777)]  # noqa: S108 (the sandbox's own)
        return Layout(lower=path, entries=_ordered(path, entries))
    raise ImageError(
        f"image {image!r}: not supported by sandbox=local. Use `host` (this machine's system folders), `dir:/path` (a root file "
        "system in a folder) or `oci:/path` (a container image's layout or archive from `docker save` or `skopeo copy`). Images of "
        "a registry need another sandbox provider."
    )


def _host(visible: tuple[str, ...]) -> Layout:
    handled = KEPT_TOP | set(EMPTY_TOP) | {"dev", "proc", "var"}
    entries = [Entry(path=str(path), kind=Kind.WHITEOUT) for path in Path("/").iterdir() if path.name not in handled]
    entries += [Entry(path=f"/{name}", kind=Kind.OPAQUE, mode=mode) for name, mode in EMPTY_TOP.items()]
    entries.append(Entry(path="/var", kind=Kind.OPAQUE))
    entries += [Entry(path=path, kind=Kind.DIR, mode=mode) for path, mode in EMPTY_BELOW.items()]
    entries += [Entry(path=path, kind=Kind.WHITEOUT) for path in _secret_places()]
    entries += [Entry(path=path, kind=Kind.OPAQUE) for path in _project_places()]
    entries += _users("/")
    binds = [(path, path) for path in visible]
    if python := _hidden_python():
        binds.append((python, HOST_PYTHON))
        entries.append(Entry(path="/usr/local/bin/python3", kind=Kind.LINK, text=f"{HOST_PYTHON}/bin/python3"))
    return Layout(lower="/", entries=_ordered("/", entries), binds=binds, host_network_binds=_resolver())


def _resolver() -> list[tuple[str, str]]:
    """Return the mount of the file that /etc/resolv.conf links to, if image `host` does not contain it."""
    path = os.path.realpath("/etc/resolv.conf")
    return [(path, path)] if Path(path).is_file() and not _shown(path) else []


def host_without_root(folder: Path, visible: Sequence[str]) -> Layout:
    """Create image `host` in `folder` without root.

    In a user namespace, the kernel rejects a lower layer that contains mounts, and root's files are not writable. So `/usr` and
    `/etc` are mounted read-only, credentials in them are covered, and the rest is empty.
    """
    lower = folder / "lower"
    lower.mkdir(parents=True)
    binds = [(path, path) for path in visible]
    for name in sorted(KEPT_TOP):
        source = Path("/", name)
        if source.is_symlink():
            (lower / name).symlink_to(source.readlink())
        elif source.is_dir():
            (lower / name).mkdir()
            binds.append((str(source), str(source)))
    empty = {**{f"/{name}": mode for name, mode in EMPTY_TOP.items()}, "/var": 0o755, **EMPTY_BELOW}
    for path, mode in empty.items():
        target = lower / path.lstrip("/")
        target.mkdir()
        target.chmod(mode)
    hidden, covered = _secrets()
    accounts, entries = _accounts(folder)
    if python := _hidden_python():
        binds.append((python, HOST_PYTHON))  # reachable by its path only: the folders of PATH are read-only
    return Layout(
        lower=str(lower),
        entries=_ordered(str(lower), entries),
        binds=[*binds, *covered, *accounts],
        host_network_binds=_resolver(),
        hidden=[*_project_places(), *hidden],
    )


def _secrets() -> tuple[list[str], list[tuple[str, str]]]:
    """Return credential folders to hide and files to cover, of those that this user can read."""
    folders, files = [], []
    for path in _secret_places():
        if os.access(path, os.R_OK) and not Path(path).is_symlink():
            if Path(path).is_dir():
                folders.append(path)
            else:
                files.append((os.devnull, path))
    return folders, files


def _accounts(folder: Path) -> tuple[list[tuple[str, str]], list[Entry]]:
    """Write account files with the agent. Return their mounts, and the entry of the agent's home."""
    binds, entries = [], []
    for entry in _users("/"):
        if entry.kind is not Kind.FILE:
            entries.append(entry)
        elif Path(entry.path).exists():
            file = folder / Path(entry.path).name
            file.write_text(entry.text)
            file.chmod(0o644)
            binds.append((str(file), entry.path))
    return binds, entries


def _secret_places() -> list[str]:
    """Return the paths of credentials, and of everything in /etc that is not world-readable."""
    found = {path for path in CREDENTIAL_PLACES if os.path.lexists(path)}
    for folder, folders, files in os.walk("/etc"):
        for name in list(folders):
            path = f"{folder}/{name}"
            if path in found or not _for_everybody(path, stat.S_IROTH | stat.S_IXOTH):
                found.add(path)
                folders.remove(name)
        found |= {path for path in (f"{folder}/{name}" for name in files) if not _for_everybody(path, stat.S_IROTH)}
    nested = {path for path in found if any(str(parent) in found for parent in Path(path).parents)}
    return sorted(found - nested - {"/etc/shadow"})


def _for_everybody(path: str, bits: int) -> bool:
    mode = os.lstat(path).st_mode
    return stat.S_ISLNK(mode) or mode & bits == bits


def _project_places() -> list[str]:
    """Return the folders of the running project that image `host` would contain."""
    package = Path(rl_agent.__file__).parent
    code = package if package.parent.name in ("site-packages", "dist-packages") else package.parent
    places = {os.path.realpath(code), str(code.absolute())}
    working = os.path.realpath(Path.cwd())
    if len(Path(working).parts) > DEPTH_OF_SYSTEM_FOLDERS:
        places.add(working)
    return sorted(path for path in places if _shown(path))


def _shown(path: str) -> bool:
    """Return whether image `host` contains a path."""
    parts = Path(path).parts
    return len(parts) > 1 and parts[1] in KEPT_TOP


def _hidden_python() -> str | None:
    """Return the prefix of this process's Python, if image `host` has no `python3`."""
    found = shutil.which("python3", path=PATH)
    if found is not None and _shown(os.path.realpath(found)):
        return None
    return os.path.realpath(sys.base_prefix)


def _users(lower: str) -> list[Entry]:
    """Return the entries of user `agent`: its home, and account files if the image does not have the user."""
    accounts = _text(lower, "etc/passwd") or "root:x:0:0:root:/root:/bin/bash\n"
    groups = _text(lower, "etc/group") or "root:x:0:\n"
    rows = [line.split(":") for line in accounts.splitlines() if line.count(":") >= 6]
    known = next((row for row in rows if row[0] == AGENT), None)
    hidden = [Entry(path="/etc/shadow", kind=Kind.FILE, mode=0o640, text=f"root:*:::::::\n{AGENT}:*:::::::\n")]
    entries = hidden if lower == "/" else []
    if known is not None:
        return [*entries, Entry(path=known[5], kind=Kind.DIR, mode=0o755, uid=int(known[2]), gid=int(known[3]))]
    taken = {int(row[2]) for row in rows if row[2].isdigit()} | {
        int(line.split(":")[2]) for line in groups.splitlines() if line.count(":") >= 3 and line.split(":")[2].isdigit()
    }
    uid = next(number for number in range(FIRST_AGENT_UID, 1 << 16) if number not in taken)
    accounts += f"{AGENT}:x:{uid}:{uid}::/home/{AGENT}:/bin/bash\n"
    groups += f"{AGENT}:x:{uid}:\n"
    return [
        *entries,
        Entry(path="/etc/passwd", kind=Kind.FILE, mode=0o644, text=accounts),
        Entry(path="/etc/group", kind=Kind.FILE, mode=0o644, text=groups),
        Entry(path=f"/home/{AGENT}", kind=Kind.DIR, uid=uid, gid=uid),
    ]


def _text(lower: str, name: str) -> str:
    try:
        text = Path(lower, name).read_text(errors="replace")
    except OSError:
        return ""
    return text if not text or text.endswith("\n") else text + "\n"


def _ordered(lower: str, entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return the entries, parents first. Missing parents get the attributes that they have in the image."""
    known = {entry.path: entry for entry in entries}
    for path in list(known):
        for parent in list(Path(path).parents)[:-1]:
            if str(parent) not in known:
                known[str(parent)] = _like(lower, str(parent))
    return [asdict(known[path]) for path in sorted(known)]


def _like(lower: str, path: str) -> Entry:
    try:
        status = Path(lower, path.lstrip("/")).stat()
    except OSError:
        return Entry(path=path, kind=Kind.DIR)
    return Entry(path=path, kind=Kind.DIR, mode=stat.S_IMODE(status.st_mode), uid=status.st_uid, gid=status.st_gid)

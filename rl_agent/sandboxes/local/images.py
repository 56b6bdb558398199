"""What a sandbox's file system is made of: the read-only image below, and the first content of the layer above it.

`host` is this machine's own file system, seen through a keyhole: only the system folders of KEPT_TOP show, and of these not
the places where machines keep secrets, nor the project itself. `dir:/path` is a root file system in a folder, `oci:/path` a
container image in a layout's folder or an archive, unpacked once.
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
"""`/var` itself is emptied; programs expect these in it."""
CREDENTIAL_PLACES: Final = (
    *("/etc/apt/auth.conf", "/etc/apt/auth.conf.d", "/etc/boto.cfg", "/etc/cloud", "/etc/containers", "/etc/crypttab"),
    *("/etc/docker", "/etc/environment", "/etc/fstab", "/etc/gitconfig", "/etc/kubernetes", "/etc/netrc", "/etc/npmrc"),
    *("/etc/pip.conf", "/etc/profile.d", "/etc/rancher", "/etc/ssh", "/etc/ssl/private", "/etc/sudoers"),
    *("/etc/sudoers.d", "/etc/wireguard", "/usr/etc", "/usr/local/etc"),
)
DEPTH_OF_SYSTEM_FOLDERS: Final = 3
"""`/`, `usr`, `lib`: a program started in a folder no deeper than this has no project there to hide."""
HOST_PYTHON: Final = "/opt/rl_agent/python"
WITHOUT_ROOT: Final = (
    "local sandboxes run without root, in user namespaces. There is one user in them: `agent` and `root` differ in name only, own "
    "the same files and may kill all processes, with which the sandbox ends; image `host` has /usr and /etc read-only. Processes are bounded for all sandboxes "
    "together, memory a process, CPU time not at all."
)


class Kind(StrEnum):
    """What an entry of the upper layer is."""

    DIR = "dir"
    OPAQUE = "opaque"
    """A folder that hides what the image has in it."""
    WHITEOUT = "whiteout"
    """Nothing: hides what the image has here."""
    FILE = "file"
    LINK = "link"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One item of the upper layer."""

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
    """`Entry`s as the helper takes them, parents first."""
    binds: Sequence[tuple[str, str]] = ()
    """Host path, path in the sandbox: shown read-only."""
    host_network_binds: Sequence[tuple[str, str]] = ()
    """The same, only where the sandbox has the host's network: name resolution needs them."""
    hidden: Sequence[str] = ()
    """Folders below a bound one that are shown empty."""


def resolve(image: str, *, visible: Iterable[str] = (), images_dir: Path | None = None) -> Layout:
    """The layout of `image`; raises ImageError when there is no such image. `images_dir`: where container images are unpacked."""
    if image == "host":
        return _host(tuple(visible))
    kind, _, path = image.partition(":")
    if kind == "oci" and path.startswith("/"):
        cache = images_dir or Path.home() / ".cache" / "rl_agent" / "images"
        kind, path = "dir", str(oci.root_of(Path(path), cache))
    if kind == "dir" and path.startswith("/"):
        if not Path(path, "bin").is_dir():
            raise ImageError(
                f"image {image!r}: {path} is not a root file system (it has no bin/). Remedy: make one, for example with "
                f"`mmdebstrap --include=bash,git,python3 bookworm {path}`, or use image `host`."
            )
        entries = [*_users(path), Entry(path="/tmp", kind=Kind.DIR, mode=0o1777)]  # noqa: S108 (the sandbox's own)
        return Layout(lower=path, entries=_ordered(path, entries))
    raise ImageError(
        f"the local sandbox has no image {image!r}. Remedy: use `host` (this machine's system folders), `dir:/path` (a root file "
        "system in a folder) or `oci:/path` (a container image's layout or archive, as `docker save` and `skopeo copy` make "
        "them); images of a registry need another sandbox provider."
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
    """The file that /etc/resolv.conf links to, if image `host` does not show it."""
    path = os.path.realpath("/etc/resolv.conf")
    return [(path, path)] if Path(path).is_file() and not _shown(path) else []


def host_without_root(folder: Path, visible: Sequence[str]) -> Layout:
    """Make image `host` in `folder`, for a user who is not root.

    In a user namespace, the kernel takes no lower layer that has other file systems mounted in it, and lets nobody write what
    root owns. So `/usr` and `/etc` are bound read-only, credentials in them are covered, and the rest is empty.
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
        binds.append((python, HOST_PYTHON))  # by its path only: what PATH names is read-only
    return Layout(
        lower=str(lower),
        entries=_ordered(str(lower), entries),
        binds=[*binds, *covered, *accounts],
        host_network_binds=_resolver(),
        hidden=[*_project_places(), *hidden],
    )


def _secrets() -> tuple[list[str], list[tuple[str, str]]]:
    """Folders to show empty, and files to cover. What this user cannot read needs neither: it cannot inside either."""
    folders, files = [], []
    for path in _secret_places():
        if os.access(path, os.R_OK) and not Path(path).is_symlink():
            if Path(path).is_dir():
                folders.append(path)
            else:
                files.append((os.devnull, path))
    return folders, files


def _accounts(folder: Path) -> tuple[list[tuple[str, str]], list[Entry]]:
    """The account files with the agent in them, to be bound over the machine's, and the agent's home."""
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
    """Credential places, and whatever else in /etc is not for everybody."""
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
    """The folders of the running project, where they lie inside a shown folder."""
    package = Path(rl_agent.__file__).parent
    code = package if package.parent.name in ("site-packages", "dist-packages") else package.parent
    places = {os.path.realpath(code), str(code.absolute())}
    working = os.path.realpath(Path.cwd())
    if len(Path(working).parts) > DEPTH_OF_SYSTEM_FOLDERS:
        places.add(working)
    return sorted(path for path in places if _shown(path))


def _shown(path: str) -> bool:
    """Whether image `host` has it."""
    parts = Path(path).parts
    return len(parts) > 1 and parts[1] in KEPT_TOP


def _hidden_python() -> str | None:
    """The prefix of this process's Python, if `python3` would not be found otherwise."""
    found = shutil.which("python3", path=PATH)
    if found is not None and _shown(os.path.realpath(found)):
        return None
    return os.path.realpath(sys.base_prefix)


def _users(lower: str) -> list[Entry]:
    """The agent user: in the image's own account files if it lacks one, with a home folder of its own."""
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
    """Entries sorted parents first, with the missing parents added as the image has them."""
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

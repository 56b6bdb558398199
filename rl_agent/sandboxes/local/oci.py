"""Container images as root file systems: an OCI layout, or an OCI or Docker archive, unpacked once per digest.

Every blob is checked against its digest. Layers are applied in order, with white-outs. Paths are resolved inside the root file
system, so that no layer can write outside through a link of another one.
"""

from __future__ import annotations

# Paths are strings, for speed: an image has tens of thousands, each resolved step by step.
# ruff: noqa: PTH101, PTH102, PTH103, PTH108, PTH112, PTH114, PTH115, PTH123, PTH211
import contextlib
import errno
import fcntl
import gzip
import hashlib
import json
import os
import platform
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

from rl_agent.errors import ImageError, SandboxError

if TYPE_CHECKING:
    from collections.abc import Sequence

WHITEOUT: Final = ".wh."
OPAQUE: Final = ".wh..wh..opq"
MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
GZIP: Final = b"\x1f\x8b"
ZSTD: Final = b"\x28\xb5\x2f\xfd"
READ_BYTES: Final = 1 << 20
MOST_LINKS: Final = 40
XATTR: Final = "SCHILY.xattr."
MACHINE: Final = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM),
)
"""Errors of this machine, not of the image."""


class _Source(Protocol):
    """Source of an image's files."""

    def open(self, name: str) -> IO[bytes]:
        """Open a file. Raises KeyError or OSError."""


class _Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self, name: str) -> IO[bytes]:
        return (self._path / name).open("rb")


class _Archive:
    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive

    def open(self, name: str) -> IO[bytes]:
        for written in (name, f"./{name}"):
            with contextlib.suppress(KeyError):
                file = self._archive.extractfile(written)
                if file is not None:
                    return file
        raise KeyError(name)


def root_of(path: Path, cache: Path) -> Path:
    """Return the image's root file system in `cache`.

    Raises ImageError for an invalid image, or one for another architecture, and SandboxError if this machine fails.
    """
    try:
        with contextlib.ExitStack() as stack:
            if path.is_dir():
                return _unpacked(_Folder(path), cache)
            return _unpacked(_Archive(stack.enter_context(tarfile.open(path, "r:*"))), cache)
    except (OSError, KeyError, ValueError, TypeError, tarfile.TarError, EOFError) as error:
        if isinstance(error, OSError) and error.errno in MACHINE:
            raise SandboxError(f"image oci:{path}: cannot unpack it into {cache}: {error}") from error
        raise ImageError(
            f"image oci:{path}: cannot unpack it: {type(error).__name__}: {error}. Use an OCI layout (a folder with index.json), or "
            "an archive from `docker save`, `podman save` or `skopeo copy`."
        ) from error


def _unpacked(source: _Source, cache: Path) -> Path:
    layers = _layers(source)
    digest = hashlib.sha256("\n".join(layers).encode()).hexdigest()
    target = cache / digest
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f".{digest}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            new = Path(tempfile.mkdtemp(dir=cache, prefix=".unpacking-"))
            try:
                new.chmod(0o755)
                for layer in layers:
                    _apply(source, layer, new)
                new.rename(target)
            finally:
                shutil.rmtree(new, ignore_errors=True)
    return target


def _layers(source: _Source) -> list[str]:
    """Return the names of the layers' files, lowest first."""
    try:
        index = _json(source, "index.json")
    except (KeyError, FileNotFoundError):
        images = _json(source, "manifest.json")
        if len(images) != 1:
            raise ValueError(f"the archive has {len(images)} images, not one") from None
        return [str(name) for name in images[0]["Layers"]]
    manifest = _manifest(source, index)
    return [_blob(layer) for layer in manifest["layers"]]


def _manifest(source: _Source, index: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest for this machine, through nested indexes."""
    for _ in range(MOST_LINKS):
        if "layers" in index:
            return index
        index = _json(source, _blob(_for_this_machine(index["manifests"])))
    raise ValueError("its indexes are nested too deeply")


def _for_this_machine(manifests: Sequence[dict[str, Any]]) -> dict[str, Any]:
    wanted = MACHINES.get(platform.machine(), platform.machine())
    kinds = [(m.get("platform") or {}) for m in manifests]
    fitting = [
        manifest
        for manifest, kind in zip(manifests, kinds, strict=True)
        if kind.get("architecture", wanted) == wanted and kind.get("os", "linux") == "linux"
    ]
    if not fitting:
        raise ValueError(f"it is for {sorted({str(kind.get('architecture')) for kind in kinds})}, not for {wanted}")
    return fitting[0]


def _blob(descriptor: dict[str, Any]) -> str:
    kind, _, digest = str(descriptor["digest"]).partition(":")
    if kind != "sha256" or not digest.isalnum():
        raise ValueError(f"unsupported digest {descriptor['digest']!r}")
    return f"blobs/sha256/{digest}"


def _json(source: _Source, name: str) -> Any:
    with source.open(name) as file:
        content = file.read()
    if name.startswith("blobs/") and hashlib.sha256(content).hexdigest() != Path(name).name:
        raise ValueError(f"{name} is damaged: its content has another digest")
    return json.loads(content)


def _apply(source: _Source, name: str, root: Path) -> None:
    """Apply one layer."""
    digest = hashlib.sha256()
    with tempfile.TemporaryFile(dir=root.parent) as checked:
        with source.open(name) as file:
            while chunk := file.read(READ_BYTES):
                digest.update(chunk)
                checked.write(chunk)
        if name.startswith("blobs/") and digest.hexdigest() != Path(name).name:
            raise ValueError(f"{name} is damaged: its content has another digest")
        checked.seek(0)
        magic = checked.read(4)
        checked.seek(0)
        if magic == ZSTD:
            raise ValueError("its layers are compressed with zstd, which is not supported; use gzip")
        with contextlib.ExitStack() as stack:
            plain = stack.enter_context(gzip.open(checked)) if magic[:2] == GZIP else checked
            archive = stack.enter_context(tarfile.open(fileobj=plain, mode="r|"))
            _Layer(root).apply(archive)


class _Layer:
    """Application of one layer to a root file system."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._times: list[tuple[str, float]] = []
        self._made: set[str] = set()

    def apply(self, archive: tarfile.TarFile) -> None:
        for member in archive:
            parts = [part for part in member.name.split("/") if part not in ("", ".")]
            if ".." in parts:
                raise ValueError(f"{member.name} points outside")
            if not parts:
                continue
            folder = self._resolved(parts[:-1])
            path = f"{folder}/{parts[-1]}"
            if parts[-1] == OPAQUE:
                self._empty(folder)
            elif parts[-1].startswith(WHITEOUT):
                _remove(f"{folder}/{parts[-1].removeprefix(WHITEOUT)}")
            else:
                self._place(archive, member, path)
        for path, moment in reversed(self._times):
            os.utime(path, (moment, moment))

    def _empty(self, folder: str) -> None:
        """Remove the entries of lower layers from a folder."""
        for entry in list(os.scandir(folder)):
            if entry.path not in self._made:
                _remove(entry.path)

    def _place(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
        if not (member.isdir() and os.path.isdir(path) and not os.path.islink(path)):
            _remove(path)
        if member.isdir():
            os.makedirs(path, exist_ok=True)
            self._times.append((path, member.mtime))
        elif member.issym():
            os.symlink(member.linkname, path)
        elif member.islnk():
            parts = [part for part in member.linkname.split("/") if part not in ("", ".")]
            if not parts or ".." in parts:
                raise ValueError(f"{member.name} links outside")
            os.link(f"{self._resolved(parts[:-1])}/{parts[-1]}", path, follow_symlinks=False)
        elif member.isfile():
            content = archive.extractfile(member)
            assert content is not None
            with open(path, "xb") as file:
                shutil.copyfileobj(content, file, READ_BYTES)
        elif member.isfifo():
            os.mkfifo(path)
        else:
            return  # a device: a sandbox has its own
        self._made.add(path)
        if not member.islnk():
            self._attributes(member, path)

    def _attributes(self, member: tarfile.TarInfo, path: str) -> None:
        if os.geteuid() == 0:
            os.chown(path, member.uid, member.gid, follow_symlinks=False)
        if member.issym():
            return
        os.chmod(path, member.mode & 0o7777)
        for name, value in member.pax_headers.items():
            if name.startswith(XATTR):
                with contextlib.suppress(OSError):  # the file system may not support it
                    os.setxattr(path, name.removeprefix(XATTR), value.encode("utf-8", "surrogateescape"))
        if member.isfile():
            os.utime(path, (member.mtime, member.mtime))

    def _resolved(self, parts: Sequence[str]) -> str:
        """Return the folder at `parts` with links resolved inside the image. Missing folders are created."""
        at, todo, links = "", list(parts), 0
        while todo:
            part = todo.pop(0)
            if part in ("", "."):
                continue
            if part == "..":
                at = at.rpartition("/")[0]
                continue
            here = f"{self._root}{at}/{part}"
            if os.path.islink(here):
                links += 1
                if links > MOST_LINKS:
                    raise ValueError(f"too many links at {'/'.join(parts)}")
                target = os.readlink(here)
                at = "" if target.startswith("/") else at
                todo = [*target.split("/"), *todo]
                continue
            if not os.path.isdir(here):
                _remove(here)
                os.mkdir(here, 0o755)
            at = f"{at}/{part}"
        return self._root + at


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

"""Files of a one-commit git repository, made without git. This saves three processes per sandbox.

Formats: git's documentation of loose objects, tree objects and index version 2. Index entries have no file times, so
git compares contents on first use.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

IDENTITY: Final = "rl_agent <rl_agent@localhost> 1577836800 +0000"
"""Author and committer of the base commit. The time is fixed, so the commit id is the same everywhere."""
CONFIG: Final = b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n"
FILE: Final = 0o100644
PROGRAM: Final = 0o100755
FOLDER: Final = 0o40000
NAME_LENGTH_BITS: Final = 0xFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """Files of a git directory, and the ids of its commit and tree."""

    files: Mapping[str, bytes]
    tree: str
    """Id of the commit's tree."""
    commit: str


def file_mode(content: bytes) -> int:
    """Return the git mode of a file: executable if it starts with `#!`."""
    return PROGRAM if content.startswith(b"#!") else FILE


def make_repository_files(files: Mapping[str, bytes]) -> Repository:
    """Return a repository whose branch `main` has one commit with `files` (path -> content)."""
    objects: dict[str, bytes] = {}
    blobs = {path: (file_mode(content), _store(objects, b"blob", content)) for path, content in files.items()}
    tree = _tree(objects, {tuple(path.encode().split(b"/")): entry for path, entry in blobs.items()})
    text = f"tree {tree.hex()}\nauthor {IDENTITY}\ncommitter {IDENTITY}\n\nbase\n"
    commit = _store(objects, b"commit", text.encode()).hex()
    return Repository(
        files={
            "HEAD": b"ref: refs/heads/main\n",
            "config": CONFIG,
            "refs/heads/main": f"{commit}\n".encode(),
            "index": _index({path.encode(): entry for path, entry in blobs.items()}),
            **{f"objects/{name[:2]}/{name[2:]}": content for name, content in objects.items()},
        },
        tree=tree.hex(),
        commit=commit,
    )


def _store(objects: dict[str, bytes], kind: bytes, content: bytes) -> bytes:
    whole = kind + b" %d\0" % len(content) + content
    digest = hashlib.sha1(whole)  # noqa: S324 (git's object id)
    objects[digest.hexdigest()] = zlib.compress(whole, 1)
    return digest.digest()


def _tree(objects: dict[str, bytes], entries: Mapping[tuple[bytes, ...], tuple[int, bytes]]) -> bytes:
    """Store the tree of `entries` (path in parts -> mode, id) and its sub-trees. Return its id."""
    below: dict[bytes, dict[tuple[bytes, ...], tuple[int, bytes]]] = {}
    rows: dict[bytes, tuple[int, bytes]] = {}
    for parts, entry in entries.items():
        if len(parts) == 1:
            rows[parts[0]] = entry
        else:
            below.setdefault(parts[0], {})[parts[1:]] = entry
    rows |= {name: (FOLDER, _tree(objects, inner)) for name, inner in below.items()}
    # git sorts folders as if their names ended with a slash
    ordered = sorted(rows, key=lambda name: name + b"/" if name in below else name)
    return _store(objects, b"tree", b"".join(b"%o %s\0%s" % (rows[name][0], name, rows[name][1]) for name in ordered))


def _index(entries: Mapping[bytes, tuple[int, bytes]]) -> bytes:
    body = struct.pack(">4sII", b"DIRC", 2, len(entries))
    for path in sorted(entries):
        mode, digest = entries[path]
        entry = (
            struct.pack(">10I20sH", 0, 0, 0, 0, 0, 0, mode, 0, 0, 0, digest, min(len(path), NAME_LENGTH_BITS)) + path
        )
        body += entry + b"\0" * (8 - len(entry) % 8)
    return body + hashlib.sha1(body).digest()  # noqa: S324 (git's checksum)

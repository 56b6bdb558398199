"""Parser of git diffs, file by file, without applying them."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

HUNK: Final = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
ESCAPE: Final = re.compile(rb"\\([0-7]{3}|.)")
ESCAPED: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
SYMLINK: Final = b"120000"
SUBMODULE: Final = b"160000"


@dataclass(slots=True, kw_only=True)
class Section:
    """Part of a patch that changes one file."""

    paths: list[bytes] = field(default_factory=list)
    modes: set[bytes] = field(default_factory=set)
    added: list[bytes] = field(default_factory=list)
    """Added lines without the leading `+`."""
    removed: list[bytes] = field(default_factory=list)
    is_new: bool = False
    """True if the base does not have the file."""
    is_deleted: bool = False
    lines: list[bytes] = field(default_factory=list)
    """All lines of the section, unchanged."""

    @property
    def name(self) -> str:
        """Path after the change, for messages."""
        return self.paths[-1].decode(errors="replace") if self.paths else "?"

    @property
    def size(self) -> int:
        """Size of the section in bytes."""
        return sum(len(line) + 1 for line in self.lines)


def sections(patch: bytes) -> Iterator[Section]:
    """Yield the files of a patch. Hunks are skipped by their line counts, so content is never taken for a header."""
    section: Section | None = None
    old = new = 0
    # line by line: a list of all lines would take many times the size of a large patch
    for ended in io.BytesIO(patch):
        line = ended.removesuffix(b"\n")
        if old > 0 or new > 0:
            old -= line[:1] in (b" ", b"-", b"")
            new -= line[:1] in (b" ", b"+", b"")
            if section is not None and line[:1] == b"+":
                section.added.append(line[1:])
            elif section is not None and line[:1] == b"-":
                section.removed.append(line[1:])
        elif hunk := HUNK.match(line):
            old, new = (1 if count is None else int(count) for count in hunk.groups())
        elif line.startswith(b"diff --git ") or (line.startswith(b"--- ") and section is None):
            if section is not None:
                yield section
            section = Section()
            _read_header(section, line)
        elif section is not None:
            _read_header(section, line)
        if section is not None:
            section.lines.append(line)
    if section is not None:
        yield section


def join(kept: list[Section]) -> bytes:
    """Return the patch that consists of these sections."""
    return b"".join(line + b"\n" for section in kept for line in section.lines)


def touched_paths(patch: bytes) -> list[bytes]:
    """Return the paths in a patch, in order, without duplicates."""
    return list(dict.fromkeys(path for section in sections(patch) for path in section.paths))


def _read_header(section: Section, line: bytes) -> None:
    section.is_new = section.is_new or line.startswith(b"new file mode ") or line == b"--- /dev/null"
    section.is_deleted = section.is_deleted or line.startswith(b"deleted file mode ")
    for prefix in (b"old mode ", b"new mode ", b"new file mode ", b"deleted file mode "):
        if line.startswith(prefix):
            section.modes.add(line[len(prefix) :].strip())
            return
    for prefix in (b"rename from ", b"rename to ", b"copy from ", b"copy to "):
        if line.startswith(prefix):
            _add(section, _unquote(line[len(prefix) :]))
            section.is_new = section.is_new or prefix.endswith(b"to ")
            return
    if line.startswith(b"index ") and b" " in line[6:]:
        section.modes.add(line.rsplit(b" ", 1)[1].strip())
    elif line.startswith((b"--- ", b"+++ ")):
        name = _unquote(line[4:].split(b"\t")[0])
        if name != b"/dev/null":
            _add(section, name.partition(b"/")[2] if name[:2] in (b"a/", b"b/") else name)
    elif line.startswith(b"diff --git "):
        rest = line[len(b"diff --git ") :]
        half = len(rest) // 2
        first, second = _unquote(rest[:half]), _unquote(rest[half + 1 :])
        if first.partition(b"/")[2] == second.partition(b"/")[2]:
            _add(section, second.partition(b"/")[2])


def _add(section: Section, path: bytes) -> None:
    if path not in section.paths:
        section.paths.append(path)


def _unquote(name: bytes) -> bytes:
    """Return a path without git's quotes and C escapes."""
    if not (name.startswith(b'"') and name.endswith(b'"') and len(name) > 1):
        return name
    return ESCAPE.sub(
        lambda match: bytes([int(match[1], 8)]) if len(match[1]) == 3 else ESCAPED.get(match[1], match[1]), name[1:-1]
    )

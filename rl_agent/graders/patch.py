"""Patches: captured from the agent's sandbox as bytes, inspected before they are applied anywhere."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rl_agent.errors import GraderError
from rl_agent.graders.base import VerdictStatus
from rl_agent.graders.workspace import GIT_ENVIRONMENT, PRIVATE, SHADOW_GIT, printed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rl_agent.graders.workspace import Workspace
    from rl_agent.sandboxes.base import Sandbox

MOST_BYTES: Final = 32 << 20
"""A longer patch is cut here, which is beyond every grader's limit."""
TEXT_SHOWN: Final = 2000
HUNK: Final = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
ESCAPE: Final = re.compile(rb"\\([0-7]{3}|.)")
ESCAPED: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
SYMLINK: Final = b"120000"
SUBMODULE: Final = b"160000"

# What the agent left running is ended first, so that nothing changes under git. A repository inside the repository would be
# recorded as a mere pointer to one of its commits: its .git goes, unless the base has it as a submodule.
CAPTURE: Final = f"""\
set -eu
for process in /proc/[0-9]*; do
  while read -r key uid _; do
    if [ "$key" = Uid: ] && [ "$uid" != 0 ]; then kill -KILL "${{process#/proc/}}" || :; fi
  done <"$process/status" || :
done 2>/dev/null
[ ! -L "$W" ]
cd "$W"
find . -mindepth 2 -name .git -prune -print0 | while IFS= read -r -d '' inner; do
  folder=${{inner%/.git}}
  case $({SHADOW_GIT} ls-files -s -- "${{folder#./}}") in
    160000*) ;;
    *) rm -rf "$inner" ;;
  esac
done
{SHADOW_GIT} add -A .
{SHADOW_GIT} diff --cached --binary --full-index --no-renames --no-ext-diff --no-textconv --no-color \
  --src-prefix=a/ --dst-prefix=b/ "$BASE" -- >"$P/patch"
"""


async def capture(sandbox: Sandbox, workspace: Workspace, *, timeout_s: float = 300.0) -> bytes:
    """What the agent changed since `prepare`, as git's binary diff; b"" for nothing.

    Ignored files do not count. Raises GraderError when git fails: never an empty patch for a failure.
    """
    environment = {
        **GIT_ENVIRONMENT,
        "W": workspace.workdir,
        "P": PRIVATE,
        "HOME": PRIVATE,
        "BASE": workspace.base_tree,
    }
    result = await sandbox.exec(CAPTURE, user="root", cwd="/", env=environment, timeout=timeout_s)
    if result.exit_code != 0:
        what = f"took longer than {timeout_s:g} s" if result.timed_out else f"failed ({result.exit_code})"
        raise GraderError(f"capturing the changes in {workspace.workdir} {what}: {printed(result, TEXT_SHOWN)}")
    return (await sandbox.read_file(f"{PRIVATE}/patch", user="root"))[:MOST_BYTES]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a patch is not applied."""

    status: VerdictStatus
    reason: str


@dataclass(slots=True, kw_only=True)
class _File:
    """One file's part of a patch."""

    paths: list[bytes] = field(default_factory=list)
    modes: set[bytes] = field(default_factory=set)
    added: list[bytes] = field(default_factory=list)
    """Added lines, kept only for symbolic links: the link's target."""


def touched_paths(patch: bytes) -> list[bytes]:
    """The paths that a patch names, in its order."""
    return list(dict.fromkeys(path for file in _files(patch) for path in file.paths))


def find_problem(patch: bytes, *, max_bytes: int, max_files: int, protected: Sequence[str]) -> Problem | None:
    """The first reason not to apply `patch`; None if there is none."""
    if len(patch) > max_bytes:
        return Problem(status=VerdictStatus.APPLY_FAILED, reason=f"the patch has more than {max_bytes} bytes")
    files = list(_files(patch))
    if len(files) > max_files:
        return Problem(
            status=VerdictStatus.APPLY_FAILED, reason=f"the patch changes {len(files)} files, more than {max_files}"
        )
    for file in files:
        if reason := _escape(file) or _protected(file, protected):
            return Problem(status=VerdictStatus.TAMPERED, reason=reason)
    return None


def _escape(file: _File) -> str | None:
    for path in file.paths:
        name = path.decode(errors="replace")
        parts = path.split(b"/")
        if path.startswith(b"/") or b".." in parts:
            return f"{name} lies outside the work tree"
        if any(part.lower() == b".git" for part in parts):
            return f"{name} lies in a git directory"
        if SUBMODULE in file.modes:
            return f"{name} is a submodule"
        if SYMLINK in file.modes:
            target = b"\n".join(file.added)
            resolved = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            if target.startswith(b"/") or resolved.split(b"/")[0] == b"..":
                return f"{name} is a symbolic link to {target.decode(errors='replace')}, outside the work tree"
            if any(part.lower() == b".git" for part in resolved.split(b"/")):
                return f"{name} is a symbolic link into a git directory"
    return None


def _protected(file: _File, patterns: Sequence[str]) -> str | None:
    for path in file.paths:
        name = path.decode(errors="replace")
        for pattern in patterns:
            if fnmatch.fnmatchcase(name, pattern):
                return f"{name} is protected ({pattern})"
    return None


def _files(patch: bytes) -> Iterator[_File]:
    """The files of a patch. Hunks are skipped by their line counts, so no content can pass for a header."""
    file: _File | None = None
    old = new = 0
    for line in patch.split(b"\n"):
        if old > 0 or new > 0:
            old -= line[:1] in (b" ", b"-", b"")
            new -= line[:1] in (b" ", b"+", b"")
            if file is not None and SYMLINK in file.modes and line[:1] == b"+":
                file.added.append(line[1:])
        elif hunk := HUNK.match(line):
            old, new = (1 if count is None else int(count) for count in hunk.groups())
        elif line.startswith(b"diff --git ") or (line.startswith(b"--- ") and file is None):
            if file is not None:
                yield file
            file = _File()
            _read_header(file, line)
        elif file is not None:
            _read_header(file, line)
    if file is not None:
        yield file


def _read_header(file: _File, line: bytes) -> None:
    for prefix in (b"old mode ", b"new mode ", b"new file mode ", b"deleted file mode "):
        if line.startswith(prefix):
            file.modes.add(line[len(prefix) :].strip())
            return
    for prefix in (b"rename from ", b"rename to ", b"copy from ", b"copy to "):
        if line.startswith(prefix):
            _add(file, _unquote(line[len(prefix) :]))
            return
    if line.startswith(b"index ") and b" " in line[6:]:
        file.modes.add(line.rsplit(b" ", 1)[1].strip())
    elif line.startswith((b"--- ", b"+++ ")):
        name = _unquote(line[4:].split(b"\t")[0])
        if name != b"/dev/null":
            _add(file, name.partition(b"/")[2] if name[:2] in (b"a/", b"b/") else name)
    elif line.startswith(b"diff --git "):
        rest = line[len(b"diff --git ") :]
        half = len(rest) // 2
        first, second = _unquote(rest[:half]), _unquote(rest[half + 1 :])
        if first.partition(b"/")[2] == second.partition(b"/")[2]:
            _add(file, second.partition(b"/")[2])


def _add(file: _File, path: bytes) -> None:
    if path not in file.paths:
        file.paths.append(path)


def _unquote(name: bytes) -> bytes:
    """A path as git prints it, where quotes mark C escapes."""
    if not (name.startswith(b'"') and name.endswith(b'"') and len(name) > 1):
        return name
    return ESCAPE.sub(
        lambda match: bytes([int(match[1], 8)]) if len(match[1]) == 3 else ESCAPED.get(match[1], match[1]), name[1:-1]
    )

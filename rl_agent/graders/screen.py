"""Screens a patch before it is applied: drops files that must not reach the tests, and rejects a patch beyond a limit.

Dropped paths are recorded in the verdict. Honest agents write tests and leave build products, so dropping is no penalty. A patch
with a path outside the work tree was not made by an honest tool, and is rejected as a whole.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rl_agent.graders.base import VerdictStatus
from rl_agent.workspace.diff import SUBMODULE, SYMLINK, join, sections

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rl_agent.workspace.diff import Section

MACHINERY: Final = (
    *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"),
    *("sitecustomize.py", "usercustomize.py", "*.pth", "jest.config.*", ".mocharc*", "vitest.config.*", "karma.conf.*"),
)
"""Names of files that decide how tests run, in any folder."""
MACHINERY_FOLDERS: Final = ("*.egg-info", "*.dist-info")
"""Folders that are read as metadata of installed packages, which can register plug-ins of test tools."""
PACKAGE_JSON: Final = re.compile(rb'"(?:pre|post)?test[^"]*"\s*:|"(?:jest|mocha|ava|nyc|vitest)"\s*:')
LEFT_OVER: Final = (
    "__pycache__",
    "node_modules",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".venv",
    ".tox",
    ".hypothesis",
)
"""Folders of build products, which are never part of a solution."""
TEST_OPTIONS: Final = re.compile(
    rb"\[(?:tool[.:])?pytest|addopts|python_(?:files|classes|functions)|testpaths|norecursedirs|filterwarnings"
    rb"|^[ \t]*(?:markers|xfail_strict|asyncio_mode|required_plugins|usefixtures|minversion|plugins)[ \t]*="
    rb"|pytest11|\[(?:tool\.)?coverage|fail_under|\[testenv|^[ \t]*commands[ \t]*="
)
"""Line of a file with several purposes that decides how tests run."""
_SEVERAL_PURPOSES: Final = {
    "package.json": PACKAGE_JSON,
    **dict.fromkeys(("pyproject.toml", "setup.cfg", "tox.ini"), TEST_OPTIONS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """Files that belong to the tests of a task."""

    patterns: tuple[str, ...] = ()
    """Patterns of fnmatch for whole paths. `*` matches `/` too."""
    places: tuple[str, ...] = ()
    """Test files that are written after the patch. No other file may stand in their place or on the way there."""


def protection(files: Iterable[str], *, more: Sequence[str] = (), brought: Iterable[str] = ()) -> Protection:
    """Return the protection of test files (paths or patterns).

    `brought`: files that the grader writes after the patch. They replace what has their name, so only their places are kept free.
    """
    files = [posixpath.normpath(file.lstrip("/")) for file in files]
    # A name without an extension may be a folder with tests and other files.
    plain = [path for path in files if posixpath.splitext(path)[1] and not any(sign in path for sign in "*?[")]
    places = dict.fromkeys((*plain, *(posixpath.normpath(file) for file in brought)))
    return Protection(patterns=(*dict.fromkeys(files), *more), places=tuple(places))


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchProblem:
    """Reason why a patch is not applied."""

    status: VerdictStatus
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """A patch after screening."""

    patch: bytes
    sections: Sequence[Section]
    """Sections of the remaining files."""
    dropped: dict[str, str] = field(default_factory=dict)
    """Path -> reason why it was dropped."""
    protected: Sequence[str] = ()
    """Dropped paths that decide how tests run, or lie outside the work tree."""
    problem: PatchProblem | None = None


def screen(patch: bytes, guard: Protection, *, max_bytes: int, max_files: int) -> Screened:
    """Drop the files that must not reach the tests. `problem` is set if the rest must not be applied either."""
    kept: list[Section] = []
    dropped: dict[str, str] = {}
    protected: list[str] = []
    for section in sections(patch):
        if reason := _outside(section):
            problem = PatchProblem(status=VerdictStatus.TAMPERED, reason=reason)
            return Screened(patch=b"", sections=(), protected=[section.name], problem=problem)
        if reason := _escape(section) or in_the_way(section, guard) or _machinery(section):
            dropped[section.name] = reason
            protected.append(section.name)
        elif reason := _test(section, guard) or _left_over(section):
            dropped[section.name] = reason
        else:
            kept.append(section)
    left = join(kept) if dropped else patch
    beyond = _limits(left, kept, max_bytes=max_bytes, max_files=max_files)
    return Screened(patch=left, sections=kept, dropped=dropped, protected=protected, problem=beyond)


def _limits(patch: bytes, kept: Sequence[Section], *, max_bytes: int, max_files: int) -> PatchProblem | None:
    if len(patch) > max_bytes:
        largest = max(kept, key=lambda section: section.size, default=None)
        where = f"; the largest part is {largest.name} with {largest.size}" if largest else ""
        reason = f"the patch has {len(patch)} bytes, more than grader.max_patch_bytes={max_bytes}{where}"
        return PatchProblem(status=VerdictStatus.APPLY_FAILED, reason=reason)
    if len(kept) > max_files:
        reason = f"the patch changes {len(kept)} files, more than grader.max_files={max_files}"
        return PatchProblem(status=VerdictStatus.APPLY_FAILED, reason=reason)
    return None


def _outside(section: Section) -> str | None:
    for path in section.paths:
        if path.startswith(b"/") or b".." in path.split(b"/"):
            return f"{path.decode(errors='replace')} lies outside the work tree"
    return None


def _escape(section: Section) -> str | None:
    if SUBMODULE in section.modes:
        return "a submodule"
    for path in section.paths:
        if any(part.lower() == b".git" for part in path.split(b"/")):
            return "in a git directory"
        if SYMLINK in section.modes:
            target = b"\n".join(section.added)
            resolved = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            if target.startswith(b"/") or resolved.split(b"/")[0] == b"..":
                return f"a symbolic link to {target.decode(errors='replace')}, outside the work tree"
            if any(part.lower() == b".git" for part in resolved.split(b"/")):
                return "a symbolic link into a git directory"
    return None


def _names(section: Section) -> list[str]:
    return [path.decode(errors="replace") for path in section.paths]


def _machinery(section: Section) -> str | None:
    for name in _names(section):
        *folders, base = name.split("/")
        for pattern in MACHINERY:
            if fnmatch.fnmatchcase(base.lower(), pattern):
                return f"decides how tests run ({pattern})"
        if any(fnmatch.fnmatchcase(folder, pattern) for folder in folders for pattern in MACHINERY_FOLDERS):
            return "metadata of an installed package"
        options = _SEVERAL_PURPOSES.get(base)
        if options is not None and any(options.search(line) for line in (*section.added, *section.removed)):
            return f"decides how tests run ({base})"
    return None


def in_the_way(section: Section, guard: Protection) -> str | None:
    """Return why the test files cannot be written after this section, or None if they can."""
    if section.is_deleted:
        return None
    for name in _names(section):
        for place in guard.places:
            if place.startswith(f"{name}/") or name.startswith(f"{place}/"):
                return f"stands in the way of the tests' {place}"
    return None


def _test(section: Section, guard: Protection) -> str | None:
    for name in _names(section):
        for pattern in guard.patterns:
            if name == pattern or fnmatch.fnmatchcase(name, pattern):
                return f"belongs to the tests ({pattern})"
    return None


def _left_over(section: Section) -> str | None:
    for name in _names(section):
        parts = name.split("/")
        if section.is_new and (name.endswith(".pyc") or any(part in LEFT_OVER for part in parts[:-1])):
            return "a build product"
    return None

"""Inspection of patches before they are applied."""

from __future__ import annotations

import pytest

from rl_agent.graders.base import VerdictStatus
from rl_agent.graders.patch import find_problem, touched_paths


def section(path: str, *, mode: str = "100644", line: str = "x", kind: str = "new file") -> bytes:
    return (
        f"diff --git a/{path} b/{path}\n{kind} mode {mode}\nindex 0000000..1111111\n--- /dev/null\n+++ b/{path}\n"
        f"@@ -0,0 +1 @@\n+{line}\n\\ No newline at end of file\n"
    ).encode()


def problem(patch: bytes, **changes: object) -> VerdictStatus | None:
    values: dict[str, object] = {"max_bytes": 10_000, "max_files": 3, "protected": ()}
    found = find_problem(patch, **{**values, **changes})  # type: ignore[arg-type]
    return None if found is None else found.status


@pytest.mark.parametrize(
    "patch",
    [
        section("../out"),
        section("a/../../out"),
        section("/etc/passwd"),
        section(".git/hooks/pre-commit"),
        section("sub/.GIT/config"),
        section("sub", mode="160000", line="Subproject commit 1"),
        section("evil", mode="120000", line="/etc/passwd"),
        section("a/evil", mode="120000", line="../../etc"),
        section("evil", mode="120000", line="a/../.."),
        section("evil", mode="120000", line=".git"),
        b"--- a/x\n+++ b/../x\n@@ -1 +1 @@\n-1\n+2\n",
        b"diff --git a/x b/../y\nsimilarity index 100%\nrename from x\nrename to ../y\n",
    ],
)
def test_reaching_outside_the_work_tree_is_tampering(patch: bytes) -> None:
    assert problem(patch) is VerdictStatus.TAMPERED


@pytest.mark.parametrize(
    "patch",
    [
        section("a"),
        section("a b/c d"),
        section("link", mode="120000", line="a"),
        section("deep/er/link", mode="120000", line="../../a"),
        section(".gitignore"),
        section("a", line="diff --git a/../x b/../x"),
        section("a", line="++ b/../x"),
        b'diff --git "a/na\\303\\257ve" "b/na\\303\\257ve"\nnew file mode 100644\nindex 000..111\n',
    ],
)
def test_honest_patches_have_no_problem(patch: bytes) -> None:
    assert problem(patch) is None


def test_content_that_looks_like_a_header_is_content() -> None:
    patch = (
        b"diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- a/../evil\n+++ b/../evil\n 2\n"
    )
    assert touched_paths(patch) == [b"x"]


def test_paths_are_read_from_every_form_of_header() -> None:
    quoted = b'diff --git "a/t\\tb \\"q\\" \\303\\251" "b/t\\tb \\"q\\" \\303\\251"\nnew file mode 100644\nindex 0..1\n'
    mode = b"diff --git a/s p/x b/s p/x\nold mode 100644\nnew mode 100755\n"
    renamed = b"diff --git a/old b/new\nrename from old\nrename to new\n"
    assert touched_paths(quoted + mode + renamed) == ['t\tb "q" é'.encode(), b"s p/x", b"old", b"new"]


def test_limits_make_a_patch_inapplicable() -> None:
    assert problem(section("a"), max_bytes=10) is VerdictStatus.APPLY_FAILED
    assert problem(b"".join(section(f"f{n}") for n in range(4))) is VerdictStatus.APPLY_FAILED
    assert problem(b"".join(section(f"f{n}") for n in range(3))) is None


@pytest.mark.parametrize(
    ("path", "pattern"), [("conftest.py", "conftest.py"), ("tests/a/b.py", "tests/*"), ("x.pth", "*.pth")]
)
def test_protected_paths_are_tampering(path: str, pattern: str) -> None:
    assert problem(section(path), protected=(pattern,)) is VerdictStatus.TAMPERED
    assert problem(section("src/other.py"), protected=(pattern,)) is None

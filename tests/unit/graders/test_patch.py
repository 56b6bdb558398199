"""Screening of patches before they are applied."""

from __future__ import annotations

import pytest

from rl_agent.graders.base import VerdictStatus
from rl_agent.graders.screen import Protection, Screened, protection, screen
from rl_agent.workspace.diff import join, sections, touched_paths


def section(path: str, *, mode: str = "100644", line: str = "x", kind: str = "new file") -> bytes:
    return (
        f"diff --git a/{path} b/{path}\n{kind} mode {mode}\nindex 0000000..1111111\n--- /dev/null\n+++ b/{path}\n"
        f"@@ -0,0 +1 @@\n+{line}\n\\ No newline at end of file\n"
    ).encode()


def screened(patch: bytes, *files: str, max_bytes: int = 10_000, max_files: int = 3) -> Screened:
    return screen(patch, protection(files), max_bytes=max_bytes, max_files=max_files)


def problem(patch: bytes, **limits: int) -> VerdictStatus | None:
    found = screened(patch, **limits).problem
    return None if found is None else found.status


@pytest.mark.parametrize(
    "patch",
    [
        section("../out"),
        section("a/../../out"),
        section("/etc/passwd"),
        b"--- a/x\n+++ b/../x\n@@ -1 +1 @@\n-1\n+2\n",
        b"diff --git a/x b/../y\nsimilarity index 100%\nrename from x\nrename to ../y\n",
    ],
)
def test_a_path_outside_the_work_tree_is_tampering_for_the_whole_patch(patch: bytes) -> None:
    assert problem(section("good.py") + patch) is VerdictStatus.TAMPERED


@pytest.mark.parametrize(
    "patch",
    [
        section(".git/hooks/pre-commit"),
        section("sub/.GIT/config"),
        section("sub", mode="160000", line="Subproject commit 1"),
        section("evil", mode="120000", line="/etc/passwd"),
        section("a/evil", mode="120000", line="../../etc"),
        section("evil", mode="120000", line="a/../.."),
        section("evil", mode="120000", line=".git"),
        *(section(f"{folder}{name}") for folder in ("", "a/b/") for name in ("conftest.py", "pytest.ini")),
        section("tox.ini", line="[testenv:py]"),
        section("setup.cfg", line="[tool:pytest]"),
        section("setup.cfg", line="addopts = -x"),
        section("pyproject.toml", line="[tool.pytest.ini_options]"),
        section("pyproject.toml", line="fail_under = 1"),
        section("sitecustomize.py"),
        section("lib/usercustomize.py"),
        section("x.pth"),
        section("src/thing.egg-info/entry_points.txt"),
        section("package.json", line='  "test": "true",'),
        section("jest.config.js"),
    ],
)
def test_what_decides_how_tests_run_is_dropped_and_named(patch: bytes) -> None:
    found = screened(section("good.py") + patch, "tests/test_a.py")
    assert found.problem is None
    assert found.patch == section("good.py")
    assert len(found.dropped) == 1
    assert list(found.protected) == list(found.dropped)


@pytest.mark.parametrize("path", ["tests/test_a.py", "check.py", "__pycache__/x.pyc"])
def test_tests_and_build_products_are_dropped_without_blame(path: str) -> None:
    found = screened(section("good.py") + section(path), "tests/test_a.py", "check.py")
    assert (found.patch, list(found.dropped), list(found.protected)) == (section("good.py"), [path], [])


@pytest.mark.parametrize(
    "path",
    [
        *("pkg/random.py", "pkg/tests.py", "other/test_b.py", "package.json", "a/json/__init__.py", "src/test/x.py"),
        *("random.py", "tests/helpers.py", "tests/deep/er/data.json", "spec/build.py", "testing/tools.py"),
        *("setup.cfg", "pyproject.toml", "tox.ini"),
    ],
)
def test_what_only_looks_like_it_stays(path: str) -> None:
    assert screened(section(path), "tests/test_a.py").dropped == {}


def test_what_makes_room_for_the_tests_or_lies_beside_them_stays() -> None:
    guard = protection(["src/widget.spec.ts", "pkg"], brought=["./checks//t.py", "t.py"])
    gone = section("checks", kind="deleted file")
    for patch in (gone, section("checks/mine.py"), section("pkg/a.py"), section("src/widget.ts"), section("t.pyx")):
        assert screen(patch, guard, max_bytes=9999, max_files=9).dropped == {}
    for path in ("checks", "checks/t.py/x", "t.py/x/y", "src/widget.spec.ts/x"):
        found = screen(section("good.py") + section(path), guard, max_bytes=9999, max_files=9)
        assert (list(found.dropped), list(found.protected), found.patch) == ([path], [path], section("good.py"))


def test_sections_join_to_the_patch_they_came_from() -> None:
    patch = b"".join(section(name) for name in ("a", "b c", "d/e"))
    assert join(list(sections(patch))) == patch


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


def test_limits_make_a_patch_inapplicable_and_name_the_largest_part() -> None:
    found = screened(section("a") + section("big", line="x" * 200), max_bytes=100)
    assert found.problem is not None
    assert found.problem.status is VerdictStatus.APPLY_FAILED
    assert "big" in found.problem.reason
    assert problem(b"".join(section(f"f{n}") for n in range(4))) is VerdictStatus.APPLY_FAILED
    assert problem(b"".join(section(f"f{n}") for n in range(3))) is None


def test_a_build_product_does_not_use_up_the_limits() -> None:
    left_over = section("node_modules/big.js", line="x" * 20_000)
    assert screened(section("a") + left_over).patch == section("a")


@pytest.mark.parametrize(("path", "pattern"), [("tests/a/b.py", "tests/*"), ("x.cfg", "*.cfg")])
def test_configured_patterns_are_dropped_too(path: str, pattern: str) -> None:
    guard = Protection(patterns=(pattern,))
    assert list(screen(section(path), guard, max_bytes=9999, max_files=9).dropped) == [path]
    assert screen(section("src/other.py"), guard, max_bytes=9999, max_files=9).dropped == {}

"""The repository that is written without git, judged by git."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from rl_agent.workspace.git_objects import make_repository_files
from rl_agent.workspace.workspace import GIT_ENVIRONMENT

if TYPE_CHECKING:
    from pathlib import Path

CASES = {
    "one": {"calc.py": b"x\n"},
    "nested": {
        "a/b/c.txt": b"1",
        "a/b.txt": b"",
        "a.txt": b"2",
        "a-b/x": b"3",
        "run": b"#!/bin/sh\n",
        ".gitignore": b"*\n",
    },
    "names": {"naïve é/ü.txt": b"1", "sp ace": b"2", "x" * 120: b"3", "seven77": b"", "eight888": b"", "b\\c": b"4"},
    "binary": {"b": bytes(range(256)) * 50},
}


def git(folder: Path, *arguments: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **GIT_ENVIRONMENT}
    done = subprocess.run(["git", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def write(folder: Path, files: dict[str, bytes]) -> None:
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(0o755 if content.startswith(b"#!") else 0o644)


@pytest.mark.parametrize("case", CASES)
def test_git_finds_it_whole_clean_and_the_same_as_its_own(tmp_path: Path, case: str) -> None:
    ours, gits = tmp_path / "ours", tmp_path / "gits"
    repository = make_repository_files(CASES[case])
    write(ours, {**CASES[case], **{f".git/{path}": content for path, content in repository.files.items()}})
    assert git(ours, "status", "--porcelain", "--untracked-files=all", "--ignored") == ""
    git(ours, "fsck", "--strict", "--full")
    write(gits, CASES[case])
    git(gits, "init", "-q", "-b", "main")
    git(gits, "add", "-A", "-f")
    git(gits, "commit", "-q", "-m", "base")
    assert git(ours, "log", "--format=%H %T %s") == git(gits, "log", "--format=%H %T %s")
    assert git(ours, "log", "--format=%H %T").split() == [repository.commit, repository.tree]
    assert git(ours, "ls-files", "-s") == git(gits, "ls-files", "-s")

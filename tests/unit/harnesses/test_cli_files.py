"""Fetching and unpacking the pinned CLIs, with a fake npm."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rl_agent.errors import HarnessError
from rl_agent.harnesses import fetch
from rl_agent.harnesses.cli_files import CODEX, PINS, Pin, cached_program, program_assets, verify
from rl_agent.harnesses.codex import CodexConfig
from tests.local import local_provider, needs_root

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = b"#!/bin/sh\necho fake\n"


def tarball(path: Path, member: str) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in ((member, PROGRAM), ("package/huge-and-unneeded", b"x" * 1000)):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def integrity(path: Path) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake npm that "packs" a prepared tarball and counts its calls in a file."""
    package = tarball(tmp_path / "package.tgz", CODEX.member)
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "npm"
    script.write_text(f'#!/bin/sh\necho "$2" >> {tmp_path}/calls\ncp {package} "$4/codex.tgz"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return package


def test_pins_are_exact_versions_with_an_integrity() -> None:
    for pin in PINS:
        assert pin.version in pin.package
        assert len(base64.b64decode(pin.integrity.removeprefix("sha512-"))) == 64


def test_fetching_unpacks_only_the_program_and_a_second_time_does_nothing(npm: Path, tmp_path: Path) -> None:
    pin, cache = replace(CODEX, integrity=integrity(npm)), tmp_path / "cache"
    program = fetch.fetch(pin, cache)
    assert program == cached_program(pin, cache)
    assert program.read_bytes() == PROGRAM
    assert program.stat().st_mode & 0o111
    assert [path.name for path in program.parent.iterdir()] == ["codex"]
    fetch.fetch(pin, cache)
    assert (tmp_path / "calls").read_text().splitlines() == [CODEX.package]
    assert [asset.source for asset in _assets(pin, cache)] == [program]


def _assets(pin: Pin, cache: Path, **changes: str | None) -> list:  # type: ignore[type-arg]
    return program_assets(pin, CodexConfig(cache_dir=str(cache), **changes))


def test_a_package_with_another_content_is_refused(npm: Path, tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="integrity"):
        fetch.fetch(CODEX, tmp_path / "cache")
    assert not cached_program(CODEX, tmp_path / "cache").exists()
    with pytest.raises(HarnessError, match="not the pinned package"):
        verify(npm, CODEX.integrity)


def test_fetching_at_the_same_time_makes_one_whole_program(npm: Path, tmp_path: Path) -> None:
    pin, cache = replace(CODEX, integrity=integrity(npm)), tmp_path / "cache"
    threads = [threading.Thread(target=fetch.fetch, args=(pin, cache)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cached_program(pin, cache).read_bytes() == PROGRAM
    assert [path.name for path in cache.iterdir() if not path.name.startswith(".")] == [f"codex-{CODEX.version}"]


def test_a_missing_npm_and_an_unreachable_registry_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fetch.main(["codex", "--cache-dir", str(tmp_path / "cache")]) == 2
    assert "npm: not found" in capsys.readouterr().err
    (tmp_path / "npm").write_text("#!/bin/sh\necho ENOTFOUND registry >&2\nexit 1\n")
    (tmp_path / "npm").chmod(0o755)
    assert fetch.main(["codex", "--cache-dir", str(tmp_path / "cache")]) == 2
    shown = capsys.readouterr().err
    assert "ENOTFOUND" in shown
    assert "Check that the npm registry is reachable" in shown


def test_the_command_line_refuses_an_unknown_cli() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rl_agent.harnesses.fetch", "gemini"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "claude_code, codex" in done.stderr


def test_a_cli_that_was_not_fetched_is_an_error_with_make_setup_as_remedy(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="make setup"):
        _assets(CODEX, tmp_path)


def test_a_local_package_and_a_local_node_are_unpacked_once(tmp_path: Path) -> None:
    package = tarball(tmp_path / "other.tgz", CODEX.member)
    node = tarball(tmp_path / "node.tgz", "node-v22/bin/node")
    for _ in range(2):
        program, runtime = _assets(CODEX, tmp_path / "c", cli_tarball=str(package), node_tarball=str(node))
        assert program.source.read_bytes() == PROGRAM
        assert (runtime.source / "bin" / "node").read_bytes() == PROGRAM
    with pytest.raises(HarnessError, match=r"missing\.tgz: tarball not found"):
        _assets(CODEX, tmp_path / "c", cli_tarball=str(tmp_path / "missing.tgz"))
    with pytest.raises(HarnessError, match="linux-x64"):
        _assets(CODEX, tmp_path / "c", cli_tarball=str(node))


def packed(path: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text), 0o755
            tar.addfile(info, io.BytesIO(text.encode()))
    return path


@needs_root
async def test_a_cli_in_javascript_runs_on_the_node_that_comes_with_it(tmp_path: Path) -> None:
    package = {
        "package/package.json": json.dumps({"bin": {"codex": "bin/codex.js"}}),
        "package/bin/codex.js": "the script",
        "package/lib/needed.js": "",
    }
    node = {"node-v22.0.0-linux-x64/bin/node": '#!/bin/sh\necho node runs "$@"; cat "$1"; ls $(dirname $1)/../lib\n'}
    assets = program_assets(
        CODEX,
        CodexConfig(
            cli_tarball=str(packed(tmp_path / "cli.tgz", package)),
            node_tarball=str(packed(tmp_path / "node.tgz", node)),
            cache_dir=str(tmp_path / "cache"),
        ),
    )
    async with local_provider(tmp_path / "state").boot("host", assets=assets, lifetime_s=60) as sandbox:
        ran = await sandbox.exec(f"{CODEX.target} exec 'a b'", timeout=30)
    assert ran.stdout.decode().splitlines() == [
        "node runs /opt/rl_agent/packages/codex/bin/codex.js exec a b",
        "the scriptneeded.js",
    ]


@pytest.mark.parametrize(
    "named", [None, "../../outside", "/bin/sh", "missing.js", "a$(touch x).js", {"other": "bin/x.js"}]
)
def test_a_package_without_a_program_or_a_script_of_its_own_is_named(named: object, tmp_path: Path) -> None:
    package = packed(tmp_path / "cli.tgz", {"package/package.json": json.dumps({"bin": named})})
    with pytest.raises(HarnessError, match=r"cli\.tgz"):
        program_assets(
            CODEX, CodexConfig(cli_tarball=str(package), node_tarball=None, cache_dir=str(tmp_path / "cache"))
        )

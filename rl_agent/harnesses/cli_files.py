"""Program files of the agent CLIs: pinned versions, the cache, and unpacking from a package."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import re
import shutil
import tarfile
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rl_agent.errors import HarnessError
from rl_agent.sandboxes.base import Asset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_agent.config.harness import HarnessConfig

BIN_FOLDER: Final = "/opt/rl_agent/bin"
"""Folder of the CLIs in a sandbox."""
NODE_FOLDER: Final = "/opt/rl_agent/node"
PACKAGE_FOLDER: Final = "/opt/rl_agent/packages"
"""Folder of JavaScript CLIs in a sandbox, each with its complete package."""
SCRIPT: Final = re.compile(r"(\./)?\w[\w.-]*(/\w[\w.-]*)*")
READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """Exact version of a CLI. Never a range: CLIs change weekly, and so do the texts that the policy sees."""

    name: str
    package: str
    """Package name and version for npm."""
    version: str
    integrity: str
    """Hash in npm's format: sha512, base64."""
    member: str
    """Path of the program in the package. Nothing else in the package is needed."""
    program: str
    """Name of the program in a sandbox."""

    @property
    def target(self) -> str:
        """Return the path of the program in a sandbox."""
        return f"{BIN_FOLDER}/{self.program}"


CLAUDE_CODE: Final = Pin(
    name="claude_code",
    package="@anthropic-ai/claude-code-linux-x64@2.1.332",
    version="2.1.332",
    integrity="sha512-f4JWhzwYutJIHScC7/dYOPX6s28tt7ZADhsOi8zwOHq5fFPEuUeChh2NMfinSg0GrUckYxaeebC4h0DqiKzLcw==",
    member="package/claude",
    program="claude",
)
CODEX: Final = Pin(
    name="codex",
    package="@openai/codex@0.171.0-linux-x64",
    version="0.171.0",
    integrity="sha512-l66NZkQgdk2C3pbcfULDz42yEUB581MVA6I+Y43Wp4OIqEy73HCdmZ0GTjeAHY2ycuH4N00d9VsLrwT1jxshTw==",
    member="package/vendor/x86_64-unknown-linux-musl/bin/codex",
    program="codex",
)
PINS: Final = (CLAUDE_CODE, CODEX)


def cache_folder(configured: str | None) -> Path:
    """Return the folder of unpacked CLIs, which is kept between runs."""
    return Path(configured).expanduser() if configured else Path.home() / ".cache" / "rl_agent" / "clis"


def cached_program(pin: Pin, cache: Path) -> Path:
    """Return the cache path of the pinned program. It exists after `fetch`."""
    return cache / f"{pin.name}-{pin.version}" / pin.program


def program_assets(pin: Pin, config: HarnessConfig) -> list[Asset]:
    """Return the CLI's assets: the configured program, the configured package, or the pinned program in the cache."""
    binary, cli_tarball, node_tarball = config.binary, config.cli_tarball, config.node_tarball
    cache = cache_folder(config.cache_dir)
    if binary is None and cli_tarball is not None:
        assets = _packaged(pin, Path(cli_tarball).expanduser(), cache)
    else:
        source, remedy = cached_program(pin, cache), "Run `make setup`, which fetches the pinned CLIs"
        if binary is not None:
            source, remedy = Path(binary).expanduser(), "Set harness.binary to the CLI's program"
        if not source.is_file():
            raise HarnessError(f"{pin.name}: program not found: {source}. {remedy}.")
        assets = [Asset(source=source.resolve(), target=pin.target)]
    if node_tarball is not None:
        node = unpack_once(Path(node_tarball).expanduser(), None, cache, "node")
        inner = [path for path in node.iterdir() if (path / "bin" / "node").is_file()]
        assets.append(Asset(source=(inner[0] if inner else node).resolve(), target=NODE_FOLDER))
    return assets


def _packaged(pin: Pin, tarball: Path, cache: Path) -> list[Asset]:
    """Return the assets of a given npm package: its linux-x64 build, or a JavaScript build, which Node runs."""
    if not tarball.is_file() or _has(tarball, pin.member):
        return [Asset(source=unpack_once(tarball, pin.member, cache, pin.program).resolve(), target=pin.target)]
    package = unpack_once(tarball, None, cache, "unpacked") / "package"
    script = _script(pin, package, tarball)
    launcher = package.parent.parent / pin.program
    if not launcher.exists():
        new = launcher.with_suffix(".new")
        new.write_text(
            f'#!/bin/sh\nPATH="{NODE_FOLDER}/bin:$PATH" exec node {PACKAGE_FOLDER}/{pin.name}/{script} "$@"\n'
        )
        new.chmod(0o755)
        new.replace(launcher)
    return [
        Asset(source=package.resolve(), target=f"{PACKAGE_FOLDER}/{pin.name}"),
        Asset(source=launcher.resolve(), target=pin.target),
    ]


def _has(tarball: Path, member: str) -> bool:
    with tarfile.open(tarball) as archive:
        return any(name == member for name in archive.getnames())


def _script(pin: Pin, package: Path, tarball: Path) -> str:
    """Return the program's script as named in package.json."""
    try:
        named = json.loads((package / "package.json").read_text()).get("bin")
    except (OSError, ValueError, AttributeError):
        named = None
    script = named.get(pin.program) if isinstance(named, dict) else named
    if not isinstance(script, str) or not SCRIPT.fullmatch(script) or not (package / script).is_file():
        raise HarnessError(
            f"{tarball}: has neither {pin.member} nor a package.json whose `bin` names a script for {pin.program}. "
            "Use the package of the linux-x64 build, or, with harness.node_tarball, a package made by `npm pack`."
        )
    return script


def verify(tarball: Path, integrity: str) -> None:
    """Raise HarnessError unless the file has the pinned hash."""
    digest = hashlib.sha512()
    with tarball.open("rb") as file:
        while chunk := file.read(READ_BYTES):
            digest.update(chunk)
    found = "sha512-" + base64.b64encode(digest.digest()).decode()
    if found != integrity:
        raise HarnessError(
            f"{tarball.name}: not the pinned package: its integrity is {found}, expected {integrity}. "
            "The registry or a proxy altered it. Fetch from a registry that you trust."
        )


def unpack_once(tarball: Path, member: str | None, cache: Path, name: str) -> Path:
    """Unpack one file (all files without `member`) of a tarball into a cache folder named by the tarball's hash."""
    if not tarball.is_file():
        raise HarnessError(
            f"{tarball}: tarball not found. Set harness.cli_tarball or harness.node_tarball to an existing file."
        )
    with tarball.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    folder = cache / f"tarball-{digest[:16]}"
    if not (folder / name).exists():
        unpack(tarball, member, folder, name)
    return folder / name


def unpack(tarball: Path, member: str | None, folder: Path, name: str) -> None:
    """Create `folder/name` from a tarball atomically: other processes never see a partial result."""
    with locked(folder):
        if (folder / name).exists():
            return
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unpacking-") as temporary:
            new = Path(temporary, "new")
            new.mkdir()
            with tarfile.open(tarball) as archive:
                if member is None:
                    archive.extractall(new / name, filter="tar")
                else:
                    _extract_program(archive, member, new / name, tarball)
            shutil.rmtree(folder, ignore_errors=True)
            new.rename(folder)


def _extract_program(archive: tarfile.TarFile, member: str, target: Path, tarball: Path) -> None:
    try:
        source = archive.extractfile(member)
    except KeyError:
        source = None
    if source is None:
        raise HarnessError(f"{tarball}: {member} not found. Use the package of the linux-x64 build.")
    with source, target.open("wb") as out:
        shutil.copyfileobj(source, out, READ_BYTES)
    target.chmod(0o755)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock out other processes while `folder` is created."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

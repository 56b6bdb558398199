"""A real Podman of the tests' own, speaking Docker's API, where Podman is installed: `apt-get install podman runc`."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from rl_agent.sandboxes.docker.provider import DockerSandboxConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rl_agent.sandboxes.docker.provider import DockerProvider

IMAGE = "docker.io/library/rl_agent_test:latest"
PROGRAMS = (
    "bash sh env id mkdir cat head tail wc tr base64 sleep setsid seq stat ls touch chmod chown rm mv dirname cp printf grep tar uname "
    "date cut sort find perl ln mkfifo true false mktemp sed dd sync df tty unshare"
)
PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
SETTINGS = """
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=8192:8192"]
netns = "none"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
tmp_dir = "FOLDER/tmp"
static_dir = "FOLDER/static"
"""


def missing() -> str | None:
    """Why there is no Podman to test with."""
    if os.geteuid() != 0:
        return "Podman's service needs root here"
    gone = [name for name in ("podman", "runc") if shutil.which(name) is None]
    return f"not installed: {', '.join(gone)} (`apt-get install podman runc`)" if gone else None


@contextmanager
def service(*, more: Sequence[str] = (), trees: Sequence[str] = ()) -> Iterator[str]:
    """A service with images and containers of its own, and one small image; its URL. `more`: programs, `trees`: folders for it."""
    folder = Path(tempfile.mkdtemp(prefix="rl_agent-podman-"))
    (folder / "containers.conf").write_text(SETTINGS.replace("FOLDER", str(folder)))
    storage = f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
    (folder / "storage.conf").write_text(storage)
    names = {"CONTAINERS_CONF": "containers.conf", "CONTAINERS_STORAGE_CONF": "storage.conf"}
    environment = {**os.environ, **{name: str(folder / file) for name, file in names.items()}}
    command = ["unshare", "--mount", "podman", "system", "service", "--time=0", f"unix://{folder}/socket"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not (folder / "socket").exists():
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, "Podman's service did not start"
            time.sleep(0.02)
        asyncio.run(_load_image(folder / "socket", root_filesystem(more=more, trees=trees)))
        yield f"unix://{folder}/socket"
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(folder)


@contextmanager
def service_if_installed() -> Iterator[str | None]:
    """`service`, or None where there is no Podman."""
    with contextlib.ExitStack() as stack:
        yield None if missing() else stack.enter_context(service())


async def _load_image(socket: Path, content: bytes) -> None:
    query = {"fromSrc": "-", "repo": IMAGE.partition(":")[0]}
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session,
        session.post("http://d/v1.41/images/create", params=query, data=content) as answer,
    ):
        assert answer.status == 200, await answer.text()
        assert "error" not in await answer.text()


def root_filesystem(*, more: Sequence[str] = (), trees: Sequence[str] = ()) -> bytes:
    """A root file system of the machine's own basic programs and the libraries that they need."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("bin", "lib", "lib64", "sbin"):
            _add(archive, name, kind=tarfile.SYMTYPE, linkname=f"usr/{name}")
        for name, mode in (("tmp", 0o1777), ("root", 0o700), ("home", 0o755), ("opt", 0o755), ("usr/bin", 0o755)):
            _add(archive, name, kind=tarfile.DIRTYPE, mode=mode)
        _add(archive, "etc/passwd", b"root:x:0:0:root:/root:/bin/bash\n")
        _add(archive, "etc/group", b"root:x:0:\n")
        found = [path for name in [*PROGRAMS.split(), *more] if (path := shutil.which(name, path=PATH))]
        libraries = subprocess.run(["ldd", *found], capture_output=True, text=True, check=False).stdout
        paths = {word.rstrip(":") for word in libraries.split() if word.startswith("/")} | set(found)
        for tree in trees:
            files = [path for path in Path(tree).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
            paths |= {str(path) for path in files if not {"test", "dist-packages"} & set(path.parts)}
        for path in sorted(paths):
            name = path if path.startswith("/usr/") else f"/usr{path}"
            _add(archive, name.lstrip("/"), Path(path).read_bytes(), mode=0o755)
    return out.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes = b"", **more: Any) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname = (
        more.get("kind", tarfile.REGTYPE),
        more.get("mode", 0o644),
        more.get("linkname", ""),
    )
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


def docker_provider(url: str, folder: Path, **changes: Any) -> DockerProvider:
    values = {"url": url, "pull": False, "state_dir": str(folder / "docker"), **changes}
    return DockerSandboxConfig(**values).build()

"""The local sandbox of somebody who is not root: the same contract, and what the machine keeps to itself stays there."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import podman
from tests.local import needs_root

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
SOMEBODY = 4242
# The capability to read lets them reach this machine's Python, wherever it is; a user namespace takes it away.
AS_SOMEBODY = (
    *("setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
)


def impossible() -> str | None:
    """Why it cannot be tried here."""
    if shutil.which("setpriv") is None:
        return "setpriv is not installed"
    tried = subprocess.run([*AS_SOMEBODY, "unshare", "--user", "true"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"no user namespaces here: {tried.stderr.strip()}"


pytestmark = [needs_root, pytest.mark.skipif(os.geteuid() == 0 and impossible() is not None, reason=str(impossible()))]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Theirs; pytest's own is root's."""
    with tempfile.TemporaryDirectory(prefix="rl_agent-alone-") as name:
        os.chown(name, SOMEBODY, SOMEBODY)
        yield Path(name)


def run(folder: Path, *arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    command = [*AS_SOMEBODY, sys.executable, *arguments]
    environment = {"HOME": str(folder), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    wrapped = ["sh", "-c", f'{before} exec "$@"', "sh", *command]
    return subprocess.run(wrapped, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)


def test_without_root_the_same_contract_holds(folder: Path) -> None:
    options = ("-q", "-p", "no:cacheprovider", f"--basetemp={folder}/tests", "-k", "local-host or e2b-gateway")
    done = run(folder, "-m", "pytest", "tests/contract/test_sandbox_contract.py", *options)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "8 skipped" in done.stdout, "what needs two users"


PROBE = """
import asyncio, logging, sys
from pathlib import Path
from tests.local import local_provider
logging.basicConfig(level=logging.INFO)
COMMANDS = '''cat %(secret)s; grep -v '[*]' /etc/shadow; echo x >/usr/bin/mine; echo x >/etc/mine; echo x >/opt/mine && echo own; mount -t tmpfs none /mnt;
mknod /tmp/sda b 8 0; unshare -U true; cat /proc/1/environ; ls -d /proc/[0-9]* | wc -l; kill -9 1; echo end''' % {"secret": sys.argv[2]}
async def main():
    async with local_provider(Path(sys.argv[1])).boot("host", lifetime_s=100) as sandbox:
        for user in ("agent", "root"):
            print((await sandbox.exec(COMMANDS, user=user, timeout=30)).stdout.decode(), end="")
    print(list(Path(sys.argv[1]).iterdir()))
asyncio.run(main())
"""


def test_secrets_and_the_machines_files_are_out_of_reach_and_the_log_states_the_limits(folder: Path) -> None:
    secret = folder / "secret"
    secret.write_text("TOP-SECRET")
    secret.chmod(0o644)
    done = run(folder, "-c", PROBE, str(folder / "state"), str(secret))
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert [lines[0], lines[2], lines[3], lines[5], lines[6]] == ["own", "end", "own", "end", "[]"]
    assert all(int(count) < 12 for count in (lines[1], lines[4]))
    assert not any(Path(folder, "mine").exists() for folder in ("/usr/bin", "/etc", "/opt"))
    assert "without root" in done.stderr
    assert "processes not bounded" in done.stderr


def test_where_users_may_not_make_namespaces_either_there_is_one_clear_error(folder: Path) -> None:
    # In a namespace whose owner may make none below it.
    denied = f'exec unshare --user --map-root-user sh -c \'echo 0 >/proc/sys/user/max_user_namespaces; exec {sys.executable} -c "$1" "$2" x\' sh'
    done = subprocess.run(
        ["sh", "-c", f'{denied} "$@"', "sh", FORBIDDEN, str(folder / "state")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert "ConfigError" in done.stderr
    assert "needs root, or user namespaces" in done.stderr.splitlines()[-1]
    assert "Run as root, allow them" in done.stderr.splitlines()[-1]


FORBIDDEN = """
import asyncio, os, sys
from pathlib import Path
from tests.local import local_provider
os.geteuid = lambda: 4242
async def main():
    async with local_provider(Path(sys.argv[1])).boot("host", lifetime_s=100):
        pass
asyncio.run(main())
"""


OWN_IMAGE = """
import asyncio, sys
from pathlib import Path
from tests.local import local_provider
async def main():
    image = f"dir:{sys.argv[2]}"
    for storage in ("memory", "disk"):
        async with local_provider(Path(sys.argv[1]), storage=storage).boot(image, lifetime_s=100) as sandbox:
            script = "mv /usr/bin/seq /usr/bin/seq2; rm /usr/bin/date; mkdir -p /opt/new; echo x >/etc/mine; ls /usr/bin/seq2 /etc/mine"
            for user in ("agent", "root"):
                print((await sandbox.exec(script, user=user, timeout=30)).stdout.decode().split())
        print(list(Path(sys.argv[1]).iterdir()))
asyncio.run(main())
"""


def test_an_image_of_ones_own_can_be_changed_and_is_not_written_to(folder: Path) -> None:
    image = folder / "image"
    with tarfile.open(fileobj=io.BytesIO(podman.root_filesystem())) as archive:
        archive.extractall(image, filter="tar")
    for path in [image, *image.rglob("*")]:
        os.chown(path, SOMEBODY, SOMEBODY, follow_symlinks=False)
    done = run(folder, "-c", OWN_IMAGE, str(folder / "state"), str(image))
    assert done.returncode == 0, done.stderr[-3000:]
    shown = str(["/etc/mine", "/usr/bin/seq2"])
    assert done.stdout.splitlines() == [shown, shown, "[]"] * 2
    assert (image / "usr/bin/date").exists()
    assert not (image / "etc/mine").exists()

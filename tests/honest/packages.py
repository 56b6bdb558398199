"""Pinned Python packages for the sandboxes: downloaded once per session, each unpacked into a folder of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

SANDBOX_PYTHON: Final = next(path for path in ("/usr/local/bin/python3", "/usr/bin/python3") if Path(path).exists())
PINNED: Final = (
    *("pytest==8.4.2", "pluggy==1.6.0", "iniconfig==2.1.0", "packaging==25.0", "pygments==2.19.2"),
    *("pytest-asyncio==1.2.0", "typing-extensions==4.15.0", "anyio==4.11.0", "idna==3.10", "sniffio==1.3.1"),
    *("trio==0.31.0", "attrs==25.4.0", "sortedcontainers==2.4.0", "outcome==1.3.0.post0", "pytest-trio==0.8.0"),
    *("hypothesis==6.140.3", "pytest-rerunfailures==16.0.1", "pytest-xdist==3.8.0", "execnet==2.1.1"),
    *("pytest-cov==7.0.0", "coverage==7.10.7", "pytest-randomly==4.0.1", "pytest-timeout==2.4.0"),
    *("pytest-mock==3.15.1", "pyfakefs==5.9.3", "pynose==1.5.5"),
)
OLDER: Final = ("pytest==7.4.4", "pytest-asyncio==0.21.2")
"""Unpacked into `name-version`."""
_PLACES: Final = {pin.partition("==")[0]: pin.split("==") for pin in PINNED} | {
    pin.replace("==", "-"): pin.split("==") for pin in OLDER
}

NODE: Final = {"jest": "jest@29.7.0", "mocha": "mocha@10.8.2"}
"""Packages of npm, each installed at its first use."""


def download_packages(folder: Path) -> None:
    """Download the wheels of all packages into `folder`."""
    numbers = "import sys; print('%d.%d' % sys.version_info[:2])"
    version = subprocess.check_output([SANDBOX_PYTHON, "-c", numbers], text=True).strip()
    for pins in (PINNED, OLDER):
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        words += ["--only-binary=:all:", "--python-version", version, "--dest", str(folder), *pins]
        subprocess.run(words, check=True, stderr=subprocess.DEVNULL)
    where = "import sysconfig; print(sysconfig.get_paths()['include'])"
    include = Path(subprocess.check_output([SANDBOX_PYTHON, "-c", where], text=True).strip())
    shutil.copytree(include if include.exists() else sysconfig.get_paths()["include"], folder / "include")


def unpack_packages(folder: Path, names: Iterable[str]) -> None:
    """Unpack and compile packages: `folder/<name>` gets the content of the wheel. `name-version` names an older one."""
    for name in names:
        place = folder / name
        if place.exists():
            continue
        if name in NODE:
            words = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(place), NODE[name]]
            subprocess.run(words, check=True)
            continue
        project, number = _PLACES[name]
        (wheel,) = folder.glob(f"{project.replace('-', '_')}-{number}-*.whl")
        zipfile.ZipFile(wheel).extractall(place)
        subprocess.run([SANDBOX_PYTHON, "-m", "compileall", "-q", str(place)], check=True)

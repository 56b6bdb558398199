"""Fetch the pinned agent CLIs into the user's cache: `python -m rl_agent.harnesses.fetch claude_code codex`.

Only this module downloads anything. Runs never do.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rl_agent.errors import HarnessError
from rl_agent.harnesses.cli_files import PINS, Pin, cache_folder, cached_program, unpack, verify

if TYPE_CHECKING:
    from collections.abc import Sequence

FETCH_TIMEOUT_S: Final = 900


def fetch(pin: Pin, cache: Path) -> Path:
    """Return the pinned program's path. Fetches, verifies and unpacks the program if it is not cached."""
    program = cached_program(pin, cache)
    if program.is_file():
        return program
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".fetching-") as folder:
        tarball = _pack(pin, Path(folder))
        verify(tarball, pin.integrity)
        unpack(tarball, pin.member, program.parent, pin.program)
    return program


def _pack(pin: Pin, folder: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise HarnessError("npm: not found. It fetches the agent CLIs. Install it, e.g. `apt-get install npm`.")
    command = [npm, "pack", pin.package, "--pack-destination", str(folder), "--silent"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise HarnessError(f"`npm pack {pin.package}` timed out after {FETCH_TIMEOUT_S} s") from None
    tarballs = list(folder.glob("*.tgz"))
    if done.returncode != 0 or len(tarballs) != 1:
        raise HarnessError(
            f"`npm pack {pin.package}` failed ({done.returncode}): {(done.stderr or done.stdout).strip()[-1500:]}\n"
            "Check that the npm registry is reachable (npm config get registry)."
        )
    return tarballs[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch the named CLIs, or all by default."""
    pins = {pin.name: pin for pin in PINS}
    parser = argparse.ArgumentParser(
        prog="python -m rl_agent.harnesses.fetch", description="Fetch the pinned agent CLIs."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(pins)} (default: all)")
    parser.add_argument("--cache-dir", help="default: ~/.cache/rl_agent/clis")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in pins]
    if unknown:
        parser.error(f"unknown CLI {unknown[0]!r}. Use {', '.join(pins)}.")
    for name in options.names or pins:
        try:
            program = fetch(pins[name], cache_folder(options.cache_dir))
        except HarnessError as error:
            sys.stderr.write(f"setup: {error}\n")
            return 2
        sys.stdout.write(f"setup: {name} {pins[name].version}: {program}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

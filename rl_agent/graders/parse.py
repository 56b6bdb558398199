"""Runs a data set's log parser on this machine, isolated: no network, no other files, limited time and memory.

The parser is the data set's code and the log is the submission's, so neither is trusted: `python -I` in a bubblewrap of its
own where bubblewrap works, else as nobody under resource limits.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rl_agent.errors import GraderError, SandboxError
from rl_agent.sandboxes.local.boot import bubblewrap

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)

NOBODY: Final = 65534
MEMORY_BYTES: Final = 2 << 30
OUTPUT_BYTES: Final = 64 << 20
FOLDER: Final = "/parse"
OUTPUT: Final = "output.json"
PYTHON: Final = str(Path(sys.executable).resolve())
"""The interpreter outside the virtual environment, since parsers need the standard library only."""
# The process limits itself before it runs the parser. argv: cpu seconds, parser, its arguments.
BOOTSTRAP: Final = f"""\
import os, resource, runpy, sys
for kind, most in ((resource.RLIMIT_AS, {MEMORY_BYTES}), (resource.RLIMIT_FSIZE, {OUTPUT_BYTES}), (resource.RLIMIT_NPROC, 64),
                   (resource.RLIMIT_CPU, int(sys.argv[1])), (resource.RLIMIT_CORE, 0)):
    resource.setrlimit(kind, (most, most))
if os.geteuid() == 0 and sys.argv[2] == "drop":
    os.setgroups([]); os.setresgid({NOBODY}, {NOBODY}, {NOBODY}); os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
sys.argv = sys.argv[3:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class ParserError(Exception):
    """Failure of a log parser. The submission writes the log, so this is not an infrastructure failure."""


def require_pinned(parser: str, sha256: str, task_id: str) -> None:
    """Raise GraderError if the parser does not have the hash that the row pins."""
    got = hashlib.sha256(parser.encode()).hexdigest()
    if sha256 and got != sha256.lower():
        raise GraderError(
            f"task {task_id}: its parser has SHA-256 {got}, but the row pins {sha256}. Restore the parser, or correct the row."
        )


async def parse_log(parser: str, stdout: bytes, stderr: bytes, *, timeout_s: float) -> list[tuple[str, str]]:
    """Return (test name, status in lower case) rows, as the parser (called with two logs and an output path) writes them.

    The parser gets valid UTF-8: published parsers crash on anything else. Raises ParserError if it fails.
    """
    with tempfile.TemporaryDirectory(prefix="rl_agent-parse-") as name:
        logs = {"stdout.log": valid_text(stdout), "stderr.log": valid_text(stderr)}
        _write(Path(name), {"parser.py": parser.encode(), **logs})
        printed, code = await _run(Path(name), timeout_s)
        return _read(Path(name, OUTPUT), printed, code)


def valid_text(log: bytes) -> bytes:
    """Return the log as UTF-8; invalid bytes are replaced."""
    return log.decode(errors="replace").encode()


def _write(folder: Path, files: dict[str, bytes]) -> None:
    for file, content in files.items():
        (folder / file).write_bytes(content)
        (folder / file).chmod(0o444)
    folder.chmod(0o777)  # the parser runs as nobody


def _read(output: Path, printed: bytes, code: int) -> list[tuple[str, str]]:
    if code != 0 or output.is_symlink() or not output.is_file():
        raise ParserError(f"the log parser ended with {code}: {printed[-2000:].decode(errors='replace')}")
    try:
        rows = json.loads(output.read_bytes())["tests"]
        return [(str(row["name"]), str(row["status"]).lower()) for row in rows]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ParserError(f"the log parser wrote no list of tests: {error!r}") from error


async def _run(folder: Path, timeout_s: float) -> tuple[bytes, int]:
    bwrap = _bubblewrap()
    if bwrap is not None:
        printed, code = await call([*_box(bwrap, folder), *_words(FOLDER, timeout_s, "keep")], timeout_s)
        if not (code and printed.startswith(b"bwrap:")):
            return printed, code
    log.warning("bubblewrap does not work here: log parsers run as nobody under resource limits only")
    return await call(_words(str(folder), timeout_s, "drop"), timeout_s)


def _words(folder: str, timeout_s: float, user: str) -> list[str]:
    files = [f"{folder}/{file}" for file in ("parser.py", "stdout.log", "stderr.log", OUTPUT)]
    return [PYTHON, "-I", "-c", BOOTSTRAP, str(max(1, round(timeout_s))), user, *files]


async def call(words: Sequence[str], timeout_s: float, **more: str) -> tuple[bytes, int]:
    """Return the output and the exit code of a program. `more` extends its environment. Raises ParserError after `timeout_s` seconds."""
    process = await asyncio.create_subprocess_exec(
        *words,
        cwd="/",
        env={"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "utf-8", **more},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout_s):
            printed, _ = await process.communicate()
    except TimeoutError as error:
        raise ParserError(f"the log parser ran longer than grader.parser_timeout_s={timeout_s:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return printed, int(process.returncode or 0)


def _box(bwrap: str, folder: Path) -> list[str]:
    words = [bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"]
    if os.geteuid() == 0:
        words += ["--uid", str(NOBODY), "--gid", str(NOBODY), "--unshare-user"]
    words += ["--setenv", "LC_ALL", "C.UTF-8", "--setenv", "PYTHONIOENCODING", "utf-8", "--tmpfs", "/tmp"]  # noqa: S108
    for place in dict.fromkeys(("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", sys.base_prefix)):
        if Path(place).is_symlink():
            words += ["--symlink", str(Path(place).readlink()), place]
        elif Path(place).exists():
            words += ["--ro-bind", place, place]
    return [*words, "--proc", "/proc", "--dev", "/dev", "--bind", str(folder), FOLDER, "--chdir", FOLDER]


def _bubblewrap() -> str | None:
    try:
        return bubblewrap()
    except SandboxError:
        return None

"""Sandbox over a service that can only run scripts: every command is a script that runs at most once."""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
import shlex
import tarfile
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from rl_agent.errors import SandboxError
from rl_agent.sandboxes.base import (
    ExecResult,
    SandboxLostError,
    UnreadableError,
    absolute,
    require_sources,
    require_success,
)
from rl_agent.sandboxes.scripted import script
from rl_agent.sandboxes.scripted.failures import Failure, again, failure_of, translated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from rl_agent.sandboxes.base import Asset

T = TypeVar("T")
log = logging.getLogger(__name__)
LINE_BYTES: Final = 64 << 10
"""An argument may have 128 KiB: larger contents, inputs and scripts are uploaded as files."""
INLINE_READ_BYTES: Final = 256 << 10
KILL_S: Final = 40.0
ASK_S: Final = 20
CALL_S: Final = 90.0
"""Timeout of one attempt of an internal script, which takes a moment, or ASK_S, or copies an upload."""
UNPACK_S: Final = 600.0
CLOCKS_S: Final = 2.0
"""Tolerance between our clock and the provider's at the end of a lifetime."""


class Remote(Protocol):
    """One sandbox of a service. Methods raise the service's own errors, which `failures.failure_of` classifies."""

    @property
    def id(self) -> str:
        """Unique name."""

    async def run(self, text: str, *, user: str) -> str:
        """Run a script with bash as `user` and return its stdout. After an error the script may still run."""

    async def upload(self, path: str, content: bytes | Path, *, user: str) -> None:
        """Write a file that `user` owns. Idempotent."""

    async def download(self, path: str, *, user: str) -> bytes:
        """Read a file with `user`'s permissions."""

    async def expose(self, port: int) -> str:
        """See `Sandbox.expose`."""

    async def remove(self) -> object:
        """Remove the sandbox, if it still exists."""


class ScriptedSandbox:
    """See `Sandbox`."""

    def __init__(self, remote: Remote, *, deadline: float, max_output_bytes: int, retries: int) -> None:
        """`deadline`: end of the lifetime on the monotonic clock."""
        self._remote = remote
        self._deadline = deadline
        self._max_output_bytes = max_output_bytes
        self._retries = retries
        self._urls: dict[int, str] = {}
        self._reported: dict[str, list[str]] = {}
        self._alone = False

    @property
    def id(self) -> str:
        """Unique name."""
        return self._remote.id

    async def set_up(self) -> None:
        """Create the user and the folders that commands need, with retries."""
        said = await self._call(script.SET_UP, user="root", what="the set-up")
        self._alone = said.strip().endswith(script.ALONE)

    def _runs(self, user: str) -> tuple[str, str]:
        """Return the user and the folder of the scripts that run a user's commands."""
        return (user, script.UPLOADS) if self._alone else ("root", script.COMMANDS)

    async def exec(
        self,
        cmd: str,
        *,
        user: str = "agent",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bytes | None = None,
        timeout: float,
        check: bool = False,
    ) -> ExecResult:
        """See `Sandbox.exec`. The command runs at most once. If its stream breaks, the result is fetched later."""
        started = time.monotonic()
        token = secrets.token_hex(10)
        timed_out = False
        runner, folder = self._runs(user)
        forget = self._reported.pop(runner, [])
        text = script.start(
            token,
            cmd,
            folder=folder,
            user=user,
            env=env or {},
            cwd=cwd,
            stdin=stdin is not None,
            limit=self._max_output_bytes,
            forget=forget,
        )
        try:
            async with asyncio.timeout(max(0.0, min(timeout, self._remaining()))):
                if stdin is not None:
                    await self._upload(f"{folder}/{token}.in", stdin, user=runner)
                report = await self._run_once(token, text, user=user)
        except TimeoutError:
            if self._remaining() <= 0:
                raise self._gone("") from None
            report, timed_out = await self._kill(token, folder), True
        except asyncio.CancelledError:
            await self._kill(token, folder)
            raise
        if report.state == script.NEVER and not timed_out:
            raise SandboxError(f"in sandbox {self.id}, `{cmd[:200]}` was not started: the request was lost")
        self._reported.setdefault(runner, []).append(token)
        if report.state == script.NO_USER:
            raise SandboxError(f"in sandbox {self.id}, cannot run a command as {user}: unknown user")
        result = ExecResult(
            exit_code=-1 if timed_out else int(report.state),
            stdout=report.stdout,
            stderr=report.stderr,
            timed_out=timed_out,
            seconds=time.monotonic() - started,
        )
        if check:
            require_success(result, cmd, sandbox=self.id, timeout=timeout)
        return result

    async def _run_once(self, token: str, text: str, *, user: str) -> script.Report:
        """Send the command once. If its stream breaks, query its state until it has ended."""
        runner, folder = self._runs(user)
        if len(text) > LINE_BYTES:
            path = f"{folder}/{token}.sh"
            await self._upload(path, text.encode(), user=runner)
            text = f". {path}; rm -f {path}"
        try:
            report = script.parse(await self._remote.run(text, user=runner))
        except Exception as error:  # the SDK raises plain Exception too
            failure = failure_of(error)
            if failure not in (Failure.TRANSIENT, Failure.RATE_LIMITED):
                raise self._error(error, f"cannot run a command as {user}") from error
            log.info("sandbox %s: a command's stream broke (%s: %s)", self.id, type(error).__name__, str(error)[:200])
            report = None
        while report is None or report.state == script.RUNNING:
            asked = script.ask(token, folder=folder, limit=self._max_output_bytes, wait_s=ASK_S)
            said = await self._call(asked, user=runner, what="the query of a command's state")
            report = script.parse(said)
        return report

    async def _kill(self, token: str, folder: str) -> script.Report:
        """Kill a command's process tree. If that fails, remove the sandbox."""
        text = script.kill(token, folder=folder, limit=self._max_output_bytes)
        try:
            async with asyncio.timeout(KILL_S):
                report = script.parse(await self._call(text, user="root", what="the kill of a command"))
        except (TimeoutError, SandboxError) as error:
            await self.remove()
            raise self._gone(f"a command could not be killed: {error}") from error
        if report is None:
            await self.remove()
            raise self._gone("a command could not be killed")
        return report

    async def remove(self) -> None:
        """Remove the sandbox, if it still exists."""
        await again(self._remote.remove, what=f"the end of sandbox {self.id}", retries=self._retries)

    async def write_file(
        self, path: str, content: bytes | str | Path, *, user: str = "agent", mode: int | None = None
    ) -> None:
        """See `Sandbox.write_file`. A command of the user writes the file, so that the sandbox's permissions hold."""
        target = shlex.quote(absolute(path))
        data = _bytes(content)
        size = _size(data)
        if isinstance(data, bytes) and size <= LINE_BYTES // 2:
            source = f"printf %s {base64.b64encode(data).decode()} | base64 -d"
            await self._write(source, target, size, user, mode)
            return
        name = f"{script.UPLOADS}/{secrets.token_hex(10)}.up"
        await self._upload(name, data, user=user)
        await self._write(f"cat {name}", target, size, user, mode)
        await self._call(f"rm -f {name}", user=user, what="the removal of an upload")

    async def _write(self, source: str, target: str, size: int, user: str, mode: int | None) -> None:
        change = "" if mode is None else f" && chmod {mode:o} -- {target}"
        text = (
            f'umask 022; mkdir -p -- "$(dirname -- {target})" 2>&1 && '
            f'{{ {source} >{target}; }} 2>&1 && [ "$(wc -c <{target})" -eq {size} ]{change} && echo whole'
        )
        said = await self._call(f"{{ {text}; }} || true", user=user, what=f"writing {target}")
        if not said.rstrip().endswith("whole"):
            raise SandboxError(f"in sandbox {self.id}, cannot write {target} as {user}: {said.strip()[-500:]}")

    async def read_file(self, path: str, *, user: str = "agent", max_bytes: int | None = None) -> bytes:
        """See `Sandbox.read_file`. With `max_bytes`, never downloads the file: it might grow before."""
        name = shlex.quote(absolute(path))
        most = INLINE_READ_BYTES if max_bytes is None else max_bytes
        large = (
            "" if max_bytes is not None else f'S=$(wc -c <{name}); [ "$S" -le {most} ] || {{ echo "size $S"; exit 0; }}'
        )
        text = f"""export LC_ALL=C
E=$(ls -dL -- {name} 2>&1 >/dev/null) || {{ echo "error $E"; exit 0; }}
[ -f {name} ] || {{ echo "error not a regular file"; exit 0; }}
E=$({{ head -c 0 -- {name} >/dev/null; }} 2>&1) || {{ echo "error $E"; exit 0; }}
{large}
D=$(head -c {most + 1} -- {name} | base64 | tr -d '\\n'); echo "data ${{#D}}"; echo "$D\""""
        for _ in range(self._retries + 1):
            kind, _, rest = (await self._call(text, user=user, what=f"reading {path}")).partition(" ")
            size_text, _, encoded = rest.partition("\n")
            if kind == "error":
                message = f"in sandbox {self.id}, cannot read {path} as {user}: {rest.strip()}"
                raise FileNotFoundError(message) if "No such file" in rest else UnreadableError(message)
            if kind == "size":
                data = await self._download(path, user=user)
                if len(data) == int(size_text):
                    return data
            elif len(encoded.strip()) == int(size_text):
                data = base64.b64decode(encoded)
                if len(data) <= most:
                    return data
                if max_bytes is not None:
                    raise UnreadableError(f"in sandbox {self.id}, {path} has more than {max_bytes} bytes")
        raise SandboxError(
            f"in sandbox {self.id}, {path} was always incomplete: it is truncated in transit, or still being written"
        )

    async def put_asset(self, asset: Asset) -> None:
        """Upload an asset to its target, read-only and owned by root."""
        require_sources([asset])
        if asset.source.is_file():
            mode = 0o555 if asset.source.stat().st_mode & 0o100 else 0o444
            await self.write_file(asset.target, asset.source, user="root", mode=mode)
            return
        await self._upload_folder(asset.source, asset.target)

    async def _upload_folder(self, folder: Path, target: str) -> None:
        name = f"{script.UPLOADS}/{secrets.token_hex(10)}.up"
        with tempfile.TemporaryDirectory(prefix="rl_agent-asset-") as temporary:
            packed = Path(temporary, "asset.tar")
            await asyncio.to_thread(pack, folder, packed)
            await self._upload(name, packed, user="root")
        place = shlex.quote(absolute(target))
        text = f"mkdir -p {place} && tar -xf {name} -C {place} && chmod -R a-w {place} && rm -f {name}"
        result = await self.exec(text, user="root", timeout=UNPACK_S)
        if result.exit_code != 0:
            raise SandboxError(
                f"in sandbox {self.id}, {target} was not unpacked: {result.stderr.decode(errors='replace')[-500:]}"
            )

    async def expose(self, port: int) -> str:
        """See `Sandbox.expose`."""
        if port not in self._urls:
            what = f"in sandbox {self.id}, the exposure of port {port}"
            self._urls[port] = await self._ask(lambda: self._remote.expose(port), what)
        return self._urls[port]

    async def _call(self, text: str, *, user: str, what: str) -> str:
        """Run an idempotent internal script; return what it prints."""

        async def run() -> str:
            async with asyncio.timeout(CALL_S):
                return await self._remote.run(text, user=user)

        return await self._ask(run, f"in sandbox {self.id}, {what} as {user}")

    async def _upload(self, path: str, content: bytes | Path, *, user: str) -> None:
        what = f"in sandbox {self.id}, the upload of {path} as {user}"
        await self._ask(lambda: self._remote.upload(path, content, user=user), what)

    async def _download(self, path: str, *, user: str) -> bytes:
        what = f"in sandbox {self.id}, the download of {path} as {user}"
        return await self._ask(lambda: self._remote.download(path, user=user), what)

    async def _ask(self, call: Callable[[], Awaitable[T]], what: str) -> T:
        """Send an idempotent request. Raises SandboxLostError if the sandbox is gone."""
        try:
            return await again(call, what=what, retries=self._retries)
        except SandboxError as error:
            if self._lost(error):
                raise self._gone(str(error)) from error
            raise

    def _remaining(self) -> float:
        return self._deadline - time.monotonic()

    def _error(self, error: Exception, what: str) -> Exception:
        if self._lost(error):
            return self._gone(str(error))
        return translated(error, f"in sandbox {self.id}, {what}")

    def _lost(self, error: Exception) -> bool:
        """Return whether the sandbox is gone. At the end of its lifetime every error means that."""
        lost = isinstance(error, SandboxLostError) or failure_of(error) is Failure.LOST
        return lost or self._remaining() <= CLOCKS_S

    def _gone(self, why: str) -> SandboxLostError:
        if self._remaining() <= CLOCKS_S:
            why = "its lifetime is over"
        return SandboxLostError(f"the sandbox {self.id} is gone: {why}")


def _bytes(content: bytes | str | Path) -> bytes | Path:
    return content.encode() if isinstance(content, str) else content


def _size(data: bytes | Path) -> int:
    if isinstance(data, bytes):
        return len(data)
    try:
        return data.stat().st_size
    except OSError as error:
        raise SandboxError(f"cannot read {data} to copy it into a sandbox: {error}") from error


def pack(folder: Path, target: Path) -> None:
    """Write a tar archive of a folder. It has no owners and times, so that equal content gives equal bytes."""
    with tarfile.open(target, "w") as archive:
        for path in sorted(folder.rglob("*")):
            info = archive.gettarinfo(path, arcname=str(path.relative_to(folder)))
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mtime = 0
            if info.isreg():
                with path.open("rb") as content:
                    archive.addfile(info, content)
            else:
                archive.addfile(info)

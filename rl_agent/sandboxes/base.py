"""The contract of sandboxes: a box with a file system, users and processes, on no network but what we expose."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from rl_agent.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path
    from typing import BinaryIO

    from rl_agent.config.sandbox import Network, SandboxConfig

STDERR_SHOWN: Final = 2000


class SandboxLostError(SandboxError):
    """The sandbox itself is gone: killed, or at the end of its lifetime. Nothing that is asked of it will work again."""


class UnreadableError(SandboxError):
    """A path that exists and cannot be read as asked: no regular file, not this user's, or too long. It says nothing of the sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on one sandbox; None means no bound."""

    memory_mb: int | None = None
    processes: int | None = None
    cpus: float | None = None


def limits_of(config: SandboxConfig) -> Limits:
    """Return the limits that a provider's config sets."""
    return Limits(memory_mb=config.memory_mb, processes=config.processes, cpus=config.cpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """A file or folder of the host that a sandbox gets read-only at boot (mounted, or uploaded once)."""

    source: Path
    target: str
    """Absolute path in the sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """What a command left. A command that ran out of time has `timed_out` set and what it printed so far."""

    exit_code: int
    """128 + signal number if a signal ended it; -1 when it timed out."""
    stdout: bytes
    """At most the provider's output limit: head and tail are kept, a line in between says what was dropped."""
    stderr: bytes
    timed_out: bool = False
    seconds: float = 0.0


def require_sources(assets: Sequence[Asset]) -> None:
    """Raise SandboxError for an asset whose file or folder does not exist."""
    for asset in assets:
        if not asset.source.exists():
            raise SandboxError(f"asset {asset.source} (for {asset.target} in the sandbox): file not found")


def absolute(path: str) -> str:
    """Return a path in a sandbox; raise SandboxError if it is relative."""
    if not path.startswith("/"):
        raise SandboxError(f"a path in a sandbox must be absolute, got {path!r}")
    return path


def require_success(result: ExecResult, cmd: str, *, sandbox: str, timeout: float) -> None:
    """Raise SandboxError, with the end of what the command printed, if it failed or timed out."""
    if result.exit_code != 0:
        what = f"ran longer than {timeout:g} s" if result.timed_out else f"ended with {result.exit_code}"
        shown = (result.stderr or result.stdout)[-STDERR_SHOWN:].decode(errors="replace")
        raise SandboxError(f"in sandbox {sandbox}, `{cmd[:200]}` {what}: {shown}")


class Sandbox(Protocol):
    """A running sandbox. Every method raises SandboxLostError when the sandbox itself is lost."""

    @property
    def id(self) -> str:
        """Unique name."""

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
        """Run `cmd` with bash. Never retried.

        At `timeout` seconds, and when the caller is cancelled, the command's whole process tree is killed. A process that
        the command left behind on purpose (setsid) outlives a command that ended by itself. The environment is only `env`
        over a minimal default (PATH, HOME, USER, LANG, TERM). stdin is `stdin`, or closed. With `check`, a non-zero exit
        code or a timeout raises SandboxError with the end of stderr.
        """

    async def write_file(
        self, path: str, content: bytes | str | Path, *, user: str = "agent", mode: int | None = None
    ) -> None:
        """Write a file (a Path is read from the host), making parent folders. Raises SandboxError on any failure."""

    async def read_file(self, path: str, *, user: str = "agent", max_bytes: int | None = None) -> bytes:
        """Read a file. Raises FileNotFoundError, UnreadableError or SandboxError; never returns b"" for a failure.

        A file longer than `max_bytes` is an UnreadableError, and no more than that is ever held.
        """

    async def expose(self, port: int) -> str:
        """Make TCP `port` of this host (127.0.0.1) reachable from inside; returns the URL (`http://host:port`) to use there."""


class SandboxProvider(Protocol):
    """Boots sandboxes. Built by `SandboxConfig.build`."""

    def boot(
        self,
        image: str,
        *,
        assets: Sequence[Asset] = (),
        lifetime_s: float,
        network: Network | None = None,
        limits: Limits | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> AbstractAsyncContextManager[Sandbox]:
        """A sandbox that is gone, with all its processes, when the context ends or `lifetime_s` is over.

        `network` and `limits` default to the provider's configuration. Raises ImageError for an image
        that does not exist, naming it; ConfigError for what no boot can give; SandboxError for all that may pass.
        """

    async def sweep(self) -> int:
        """Remove what killed runs left (folders, remote sandboxes); returns how many."""


class Stream(StrEnum):
    """Where a process printed something."""

    STDOUT = "stdout"
    STDERR = "stderr"


class Process(Protocol):
    """A process of a sandbox whose output is read while it runs."""

    @property
    def pid(self) -> int:
        """Its number inside the sandbox."""

    def chunks(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """What it prints, as it comes; a slow reader slows the process down. Ends with the process: then `code` is known."""

    @property
    def code(self) -> int:
        """Exit code, 128 + signal number if a signal ended it."""

    async def write(self, data: bytes) -> None:
        """Send to its stdin. Raises BrokenPipeError when nobody reads there."""

    def close_stdin(self) -> None:
        """Its stdin is at its end."""

    def signal(self, number: int) -> None:
        """Send it a signal."""

    def kill(self) -> None:
        """Kill it with everything that it started."""


class Streaming(Protocol):
    """What a sandbox offers besides `Sandbox` when its provider can stream (`local` can)."""

    async def start(
        self, argv: Sequence[str], *, user: str, env: Mapping[str, str], cwd: str | None, stdin: bool
    ) -> Process:
        """Start a program. It runs on until it ends or is killed; whoever started it must read its `chunks`."""

    async def open_file(self, path: str, *, user: str) -> BinaryIO:
        """A regular file, opened for reading as `user`. Raises as `Sandbox.read_file` does."""

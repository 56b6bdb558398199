"""Contract of sandboxes: isolated file system, users and processes, with no network but the exposed ports."""

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
    """The sandbox is gone: killed, or at the end of its lifetime. Every later call fails too."""


class UnreadableError(SandboxError):
    """A path exists but cannot be read: not a regular file, no permission, or too long. The sandbox itself works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Resource limits of one sandbox; None means no limit."""

    memory_mb: int | None = None
    processes: int | None = None
    cpus: float | None = None


def limits_of(config: SandboxConfig) -> Limits:
    """Return the limits of a provider's config."""
    return Limits(memory_mb=config.memory_mb, processes=config.processes, cpus=config.cpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """A file or folder of the host that is read-only in the sandbox: mounted, or uploaded at boot."""

    source: Path
    target: str
    """Absolute path in the sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """Result of a command. After a timeout, `timed_out` is set and the output is what it printed until then."""

    exit_code: int
    """128 + signal number for a signal; -1 for a timeout."""
    stdout: bytes
    """Limited to `max_output_bytes`: head and tail, with a line in between that gives the number of dropped bytes."""
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
    """A running sandbox. Every method raises SandboxLostError if the sandbox is gone."""

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

        After `timeout` seconds, or if the caller is cancelled, the whole process tree of the command is killed. Background
        processes outlive a command that exits by itself. The environment is `env` over a minimal default (PATH, HOME, USER,
        LANG, TERM). Without `stdin`, standard input is empty. With `check`, a non-zero exit code or a timeout raises
        SandboxError with the end of stderr.
        """

    async def write_file(
        self, path: str, content: bytes | str | Path, *, user: str = "agent", mode: int | None = None
    ) -> None:
        """Write a file and create its parent folders. A Path is read from the host. Raises SandboxError on any failure."""

    async def read_file(self, path: str, *, user: str = "agent", max_bytes: int | None = None) -> bytes:
        """Read a file. Raises FileNotFoundError, UnreadableError or SandboxError; never returns b"" for a failure.

        A file longer than `max_bytes` raises UnreadableError. At most that much is held in memory.
        """

    async def expose(self, port: int) -> str:
        """Make TCP `port` of this host (127.0.0.1) reachable from the sandbox. Returns its URL there, `http://host:port`."""


class SandboxProvider(Protocol):
    """Source of sandboxes, built by `SandboxConfig.build`."""

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
        """Boot a sandbox. It is removed when the context ends or after `lifetime_s`.

        `network` and `limits` default to the provider's config. Raises ImageError for an image that does not exist,
        ConfigError for a request that can never succeed, and SandboxError for failures that may pass.
        """

    async def sweep(self) -> int:
        """Remove the folders and sandboxes of killed runs; return their number."""


class Stream(StrEnum):
    """Output stream of a process."""

    STDOUT = "stdout"
    STDERR = "stderr"


class Process(Protocol):
    """A process in a sandbox whose output is read while it runs."""

    @property
    def pid(self) -> int:
        """Process id inside the sandbox."""

    def chunks(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """Yield output as it arrives, until the process exits and `code` is known. A slow reader slows the process down."""

    @property
    def code(self) -> int:
        """Exit code; 128 + signal number for a signal."""

    async def write(self, data: bytes) -> None:
        """Write to stdin. Raises BrokenPipeError if it is closed."""

    def close_stdin(self) -> None:
        """Close stdin."""

    def signal(self, number: int) -> None:
        """Send a signal to the process."""

    def kill(self) -> None:
        """Kill the process tree."""


class Streaming(Protocol):
    """Extra methods of sandboxes whose provider can stream (`local`)."""

    async def start(
        self, argv: Sequence[str], *, user: str, env: Mapping[str, str], cwd: str | None, stdin: bool
    ) -> Process:
        """Start a program, which runs until it exits or is killed. The caller must read its `chunks`."""

    async def open_file(self, path: str, *, user: str) -> BinaryIO:
        """Open a regular file for reading as `user`. Raises the same errors as `Sandbox.read_file`."""

"""A running local sandbox: commands, files and ports, all through the helper process."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from rl_agent.config.sandbox import Network
from rl_agent.errors import SandboxError
from rl_agent.sandboxes.base import ExecResult, SandboxLostError, Stream, UnreadableError, absolute, require_success
from rl_agent.sandboxes.local.forward import Forward
from rl_agent.sandboxes.local.helper import Answer, Call, Helper, HelperError, kill, machine_must, memory_file
from rl_agent.sandboxes.local.images import PATH
from rl_agent.sandboxes.local.process import LocalProcess, Output

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from rl_agent.sandboxes.local.boot import Processes
    from rl_agent.sandboxes.local.limits import ControlGroups

DEFAULT_ENVIRONMENT: Final = {"PATH": PATH, "LANG": "C.UTF-8", "TERM": "dumb"}
KILL_TIMEOUT_S: Final = 10.0
UNREADABLE: Final = (
    errno.EINVAL,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENXIO,
    errno.EACCES,
)
"""Errors of unreadable paths. The helper reports EINVAL if a path is not a regular file."""


class LocalSandbox:
    """See `Sandbox`."""

    def __init__(
        self,
        *,
        name: str,
        helper: Helper,
        processes: Processes,
        groups: ControlGroups,
        network: Network,
        nice: int,
        max_output_bytes: int,
        seccomp: bytes,
        deadline: float,
    ) -> None:
        self._name = name
        self._helper = helper
        self._processes = processes
        self._groups = groups
        self._network = network
        self._nice = nice
        self._max_output_bytes = max_output_bytes
        self._seccomp = seccomp.hex()
        self._deadline = deadline
        self._expired = False
        self._still_open: list[Output] = []
        self._forwards: dict[int, Forward] = {}
        self._stack = AsyncExitStack()

    @property
    def id(self) -> str:
        """Unique name."""
        return self._name

    async def __aenter__(self) -> LocalSandbox:
        """Start the timer of the lifetime."""
        timer = asyncio.get_running_loop().call_later(max(0.0, self._deadline - time.monotonic()), self._expire)
        self._stack.callback(timer.cancel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close descriptors and forwards. `Boot` kills the processes inside."""
        for output in self._still_open:
            output.close()
        await self._stack.aclose()

    def _expire(self) -> None:
        self._expired = True
        kill(self._processes.init)

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
        """See `Sandbox.exec`."""
        started = time.monotonic()
        request = self._request(["/bin/bash", "-c", cmd], user=user, env=env or {}, cwd=cwd)
        given = _nothing if stdin is None else lambda: (memory_file(stdin),)
        source, out_read, out_write, err_read, err_write = _descriptors(given, _pipe, _pipe)
        out, err = Output(out_read, self._max_output_bytes), Output(err_read, self._max_output_bytes)
        try:
            try:
                call = self._call(request, [source, out_write, err_write])
            finally:
                for fd in (source, out_write, err_write):
                    os.close(fd)
            code = await self._wait(call, timeout)
            result = ExecResult(
                exit_code=-1 if code is None else code,
                stdout=out.take(),
                stderr=err.take(),
                timed_out=code is None,
                seconds=time.monotonic() - started,
            )
        finally:
            self._retire(out, err)
        if check:
            require_success(result, cmd, sandbox=self._name, timeout=timeout)
        return result

    def _request(self, argv: Sequence[str], *, user: str, env: Mapping[str, str], cwd: str | None) -> dict[str, Any]:
        return {
            "op": "exec",
            "user": user,
            "argv": list(argv),
            "env": {**DEFAULT_ENVIRONMENT, **env},
            "cwd": cwd,
            "nice": self._nice,
            "rlimits": self._groups.rlimits,
            "seccomp": self._seccomp,
        }

    async def start(
        self, argv: Sequence[str], *, user: str, env: Mapping[str, str], cwd: str | None, stdin: bool
    ) -> LocalProcess:
        """See `Streaming.start`."""
        request = {**self._request(argv, user=user, env=env, cwd=cwd), "announce": True}
        out_read, out_write, err_read, err_write, in_read, *rest = _descriptors(
            _pipe, _pipe, _pipe if stdin else _nothing
        )
        in_write = rest[0] if stdin else None
        ours = [out_read, err_read, *rest]
        call: Call | None = None
        try:
            try:
                call = self._call(request, [in_read, out_write, err_write])
            finally:
                for fd in (in_read, out_write, err_write):
                    os.close(fd)
            pid = int((await self._answer(call)).message["pid"])
        except BaseException:
            for fd in ours:
                os.close(fd)
            if call is not None:
                call.close()
            raise
        return LocalProcess(
            call,
            pid=pid,
            stdin=in_write,
            outputs={out_read: Stream.STDOUT, err_read: Stream.STDERR},
            gone=self._gone,
            retire=lambda fd: self._retire(Output(fd, 0)),
        )

    async def _wait(self, call: Call, timeout: float) -> int | None:
        """Return the command's exit code. After a timeout, kill its process tree and return None."""
        try:
            async with asyncio.timeout(timeout):
                return int((await self._answer(call)).message["code"])
        except TimeoutError:
            await self._kill_tree(call)
            return None
        except asyncio.CancelledError:
            await self._kill_tree(call)
            raise
        finally:
            call.close()

    async def _kill_tree(self, call: Call) -> None:
        call.stop()
        try:
            async with asyncio.timeout(KILL_TIMEOUT_S):
                await call.answer()
        except TimeoutError:
            self._expire()  # kill the whole sandbox instead

    def _retire(self, *outputs: Output) -> None:
        """Keep reading outputs that a background process still holds, so that it does not block."""
        for output in outputs:
            if output.open:
                output.take()
                self._still_open.append(output)
        self._still_open = [output for output in self._still_open if output.open]

    async def write_file(
        self, path: str, content: bytes | str | Path, *, user: str = "agent", mode: int | None = None
    ) -> None:
        """See `Sandbox.write_file`."""
        source = _source(content)
        try:
            await self._file_call({"op": "write", "path": absolute(path), "user": user, "mode": mode}, [source])
        finally:
            os.close(source)

    async def read_file(self, path: str, *, user: str = "agent", max_bytes: int | None = None) -> bytes:
        """See `Sandbox.read_file`."""
        with await self.open_file(path, user=user) as file:
            try:
                data: bytes = await asyncio.to_thread(file.read, -1 if max_bytes is None else max_bytes + 1)
            except OSError as error:  # a file of the kernel's, such as /proc/self/mem
                raise UnreadableError(f"in sandbox {self._name}, cannot read {path}: {error}") from error
        if max_bytes is not None and len(data) > max_bytes:
            raise UnreadableError(f"in sandbox {self._name}, {path} has more than {max_bytes} bytes")
        return data

    async def open_file(self, path: str, *, user: str) -> BinaryIO:
        """See `Streaming.open_file`."""
        fds = await self._file_call({"op": "read", "path": absolute(path), "user": user}, [])
        return os.fdopen(fds[0], "rb")

    async def _file_call(self, request: dict[str, Any], fds: Sequence[int]) -> Sequence[int]:
        call = self._call(request, fds)
        try:
            return (await self._answer(call)).fds
        except HelperError as error:
            message = f"in sandbox {self._name}, cannot {request['op']} {request['path']} as {request['user']}: {error}"
            if request["op"] == "read" and error.errno == errno.ENOENT:
                raise FileNotFoundError(message) from error
            if request["op"] == "read" and error.errno in UNREADABLE:
                raise UnreadableError(message) from error
            raise SandboxError(message) from error
        finally:
            call.close()

    async def expose(self, port: int) -> str:
        """See `Sandbox.expose`. The port number is the same inside."""
        if self._network is Network.none and port not in self._forwards:
            call = self._call({"op": "listen", "port": port}, [])
            try:
                listener = socket.socket(fileno=(await self._answer(call)).fds[0])
            finally:
                call.close()
            listener.setblocking(False)
            forward = Forward(port)
            await forward.start(listener)
            self._forwards[port] = forward
            self._stack.push_async_callback(forward.close)
        return f"http://127.0.0.1:{port}"

    def _call(self, request: dict[str, Any], fds: Sequence[int]) -> Call:
        groups = [str(path) for path in self._groups.folders]
        own_network = self._network is Network.none
        with machine_must(f"send the request `{request['op']}` to sandbox {self._name}"):
            return self._helper.call(
                {**request, "cgroups": groups, "own_network": own_network}, [self._processes.init, *fds]
            )

    async def _answer(self, call: Call) -> Answer:
        try:
            answer = await call.answer()
        except HelperError as error:
            if error.errno == errno.ESRCH:  # process 1 has exited
                raise self._gone() from error
            raise
        if answer.closed:
            raise self._gone()
        return answer

    def _gone(self) -> SandboxLostError:
        why = "its lifetime is over" if self._expired else "its processes were killed"
        return SandboxLostError(f"the sandbox {self._name} is gone: {why}")


def _pipe() -> Sequence[int]:
    return os.pipe2(os.O_CLOEXEC)


def _nothing() -> Sequence[int]:
    return (os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC),)


def _descriptors(*givers: Callable[[], Sequence[int]]) -> list[int]:
    """Return all descriptors of `givers`. At the limit of open files, close those that were opened."""
    found: list[int] = []
    try:
        with machine_must("open the files of a command"):
            for give in givers:
                found += give()
    except SandboxError:
        for fd in found:
            os.close(fd)
        raise
    return found


def _source(content: bytes | str | Path) -> int:
    """Return a descriptor to read `content` from."""
    if isinstance(content, Path):
        try:
            return os.open(content, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise SandboxError(f"cannot read {content} to copy it into a sandbox: {error}") from error
    return memory_file(content.encode() if isinstance(content, str) else content)

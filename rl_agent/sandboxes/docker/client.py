"""Docker's HTTP API, as far as sandboxes need it. Podman's service (`podman system service`) speaks it too."""

from __future__ import annotations

import asyncio
import json
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import aiohttp

from rl_agent.errors import ConfigError, SandboxError
from rl_agent.sandboxes.scripted.failures import Failure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

FRAME: Final = struct.Struct(">BxxxI")
"""Before each piece of a command's output: 1 for stdout or 2 for stderr, and its length."""
API: Final = re.compile(r"\d+\.\d+")
STDOUT: Final = 1
STDERR_KEPT: Final = 4000
ENDING_S: Final = 3.0
"""How long a command whose output is at its end may still count as running."""
GONE: Final = (
    "no such container",
    "is not running",
    "container state improper",
    "running containers",
    "in a stopped container",
    "does not exist in database",
)
PULL_STATUSES: Final = {
    429: ("toomanyrequests", "too many requests"),
    401: ("unauthorized",),
    404: (
        *("manifest unknown", "name unknown", "not found", "no matching manifest", "no such image", "does not exist"),
        *("access to the resource is denied", "invalid reference", "did not resolve to an alias"),
    ),
}
"""What is said of an image that is not given, in the order in which it is looked for. Docker Hub denies access to what it has not."""
REFUSED: Final = ("unable to find user", "no matching entries")


class DockerError(Exception):
    """The service refused a request, or broke off."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.failure = _failure(status, message.lower())


def _failure(status: int, message: str) -> Failure:
    if any(words in message for words in GONE):
        return Failure.LOST
    if any(words in message for words in REFUSED):
        return Failure.REFUSED
    if status == 404:
        return Failure.MISSING
    if status in (401, 403):
        return Failure.FORBIDDEN
    if status == 429:
        return Failure.RATE_LIMITED
    return Failure.TRANSIENT if status >= 500 or status == 0 else Failure.REFUSED


def _pull_error(said: str) -> DockerError:
    """By what registries say: the status that comes with it is the service's, which gives one for all."""
    message = said.lower()
    for status, words in PULL_STATUSES.items():
        if any(word in message for word in words):
            return DockerError(status, said)
    return DockerError(500, said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """What a command of ours left."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class DockerClient:
    """Asks the service at `url`: `unix:///path` or `http://host:port`."""

    def __init__(self, url: str, *, timeout_s: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("unix", "http", "tcp"):
            raise ConfigError(f"sandbox.url={url} is neither unix:///path/to/socket nor http://host:port")
        self.url = url
        self.local = parts.scheme == "unix"
        """Whether the service is this machine's own, and sees its files."""
        self._socket = parts.path
        self._base = "http://docker" if self.local else f"http://{parts.netloc}"
        self._timeout_s = timeout_s
        self._version = ""

    def _session(self, timeout_s: float | None) -> aiohttp.ClientSession:
        connector = aiohttp.UnixConnector(self._socket) if self.local else aiohttp.TCPConnector()
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=self._timeout_s)
        return aiohttp.ClientSession(connector=connector, timeout=timeout)

    async def ping(self) -> None:
        """Raises SandboxError when nobody answers there; else takes the version of the API that the service speaks."""
        try:
            async with self._session(self._timeout_s) as session, session.get(f"{self._base}/_ping") as answer:
                await _checked(answer)
                if (version := answer.headers.get("Api-Version", "")) and API.fullmatch(version):
                    self._version = f"/v{version}"
        except (aiohttp.ClientError, OSError, DockerError) as error:
            raise SandboxError(
                f"no Docker answers at {self.url} ({error}). Remedy: start it (`systemctl start docker`, or `podman system service "
                "--time=0 unix:///run/podman/podman.sock`), or set sandbox.url to where it is."
            ) from error

    async def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        """The JSON that answers a request, None for an empty answer."""
        async with (
            self._session(self._timeout_s) as session,
            session.request(method, self._base + self._version + path, json=body, params=query) as answer,
        ):
            text = await _checked(answer)
        return json.loads(text) if text.strip() else None

    async def pull(self, image: str, *, timeout_s: float) -> None:
        """Fetch an image from its registry. DockerError's failure is MISSING only if the registry has none of that name."""
        name, _, tag = image.rpartition(":") if ":" in image.rpartition("/")[2] else (image, "", "latest")
        query = {"fromImage": image} if "@" in image else {"fromImage": name, "tag": tag}
        async with (
            self._session(timeout_s) as session,
            session.post(f"{self._base}{self._version}/images/create", params=query) as answer,
        ):
            try:
                text = await _checked(answer)
            except DockerError as error:
                raise _pull_error(str(error)) from error
        for line in text.splitlines():  # progress; a failure comes in it, after the status
            if said := json.loads(line).get("error"):
                raise _pull_error(str(said))

    async def put_archive(self, name: str, folder: str, archive: AsyncIterator[bytes], *, timeout_s: float) -> None:
        """Unpack a tar in a folder of a container."""
        async with (
            self._session(timeout_s) as session,
            session.put(
                f"{self._base}{self._version}/containers/{name}/archive",
                params={"path": folder},
                data=archive,
                headers={"Content-Type": "application/x-tar"},
            ) as answer,
        ):
            await _checked(answer)

    async def run(self, name: str, argv: Sequence[str], *, user: str) -> Printed:
        """Run a command in a container to its end. Raises DockerError when its output breaks off."""
        order = {"User": user, "Cmd": list(argv), "AttachStdout": True, "AttachStderr": True}
        run_id = (await self.ask("POST", f"/containers/{name}/exec", order))["Id"]
        async with (
            self._session(None) as session,
            session.post(
                f"{self._base}{self._version}/exec/{run_id}/start", json={"Detach": False, "Tty": False}
            ) as answer,
        ):
            if answer.status >= 300:
                await _checked(answer)
            out, err = await _outputs(answer.content)
        code = await self._exit_code(run_id)
        if code is None:
            raise DockerError(0, "the output broke off")
        return Printed(exit_code=code, stdout=bytes(out), stderr=bytes(err[-STDERR_KEPT:]))

    async def _exit_code(self, run_id: str) -> int | None:
        """None while it runs on, or when it is not known: then its output has broken off."""
        for _ in range(int(ENDING_S / 0.05)):
            try:
                state = await self.ask("GET", f"/exec/{run_id}/json")
            except DockerError as error:
                if error.status == 404:
                    return None
                raise
            if not state["Running"]:
                return int(state["ExitCode"])
            await asyncio.sleep(0.05)
        return None


async def _outputs(content: aiohttp.StreamReader) -> tuple[bytearray, bytearray]:
    out, err = bytearray(), bytearray()
    while True:
        try:
            head = await content.readexactly(FRAME.size)
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise DockerError(0, "the output broke off in a frame") from None
            return out, err
        stream, size = FRAME.unpack(head)
        try:
            (out if stream == STDOUT else err).extend(await content.readexactly(size))
        except asyncio.IncompleteReadError:
            raise DockerError(0, "the output broke off in a frame") from None
        del err[:-STDERR_KEPT]


async def _checked(answer: aiohttp.ClientResponse) -> str:
    text = await answer.text()
    if answer.status < 300 or answer.status == 304:
        return text
    try:
        message = str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        message = text[:600]
    raise DockerError(answer.status, message)
